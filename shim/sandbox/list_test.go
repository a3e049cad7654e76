package sandbox_test

import (
	"testing"

	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/shim/state"
)

func TestListFilters(t *testing.T) {
	s, engine, _ := inMemory()
	ready, stopped := uniqueConfig(), uniqueConfig()
	stopped.Labels = map[string]string{"app": "y"}
	readyID, stoppedID := run(t, s, ready), run(t, s, stopped)
	engine.Exit(stoppedID, 0)
	member(t, engine, readyID, "app")
	state := func(v runtimeapi.PodSandboxState) *runtimeapi.PodSandboxStateValue {
		return &runtimeapi.PodSandboxStateValue{State: v}
	}
	for name, c := range map[string]struct {
		filter *runtimeapi.PodSandboxFilter
		want   []string
	}{
		"none, the newest first":  {nil, []string{stoppedID, readyID}},
		"an empty one":            {&runtimeapi.PodSandboxFilter{}, []string{stoppedID, readyID}},
		"ready":                   {&runtimeapi.PodSandboxFilter{State: state(runtimeapi.PodSandboxState_SANDBOX_READY)}, []string{readyID}},
		"not ready":               {&runtimeapi.PodSandboxFilter{State: state(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)}, []string{stoppedID}},
		"an id":                   {&runtimeapi.PodSandboxFilter{Id: readyID}, []string{readyID}},
		"the start of an id":      {&runtimeapi.PodSandboxFilter{Id: readyID[:8]}, []string{readyID}},
		"a label":                 {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"app": "y"}}, []string{stoppedID}},
		"a label that is escaped": {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"annotation.trap": "y"}}, []string{readyID}},
		"everything at once": {&runtimeapi.PodSandboxFilter{
			Id: readyID, State: state(runtimeapi.PodSandboxState_SANDBOX_READY), LabelSelector: map[string]string{"app": "x"},
		}, []string{readyID}},
		"an id and another's label": {&runtimeapi.PodSandboxFilter{Id: readyID, LabelSelector: map[string]string{"app": "y"}}, nil},
	} {
		var got []string
		for _, p := range listBy(t, s, c.filter) {
			got = append(got, p.GetId())
		}
		t.Run(name, func(t *testing.T) { compare(t, c.want, got) })
	}
}

func TestPodsOfOtherShimsAreAdopted(t *testing.T) {
	s, engine, plugin := inMemory()
	made, err := engine.ContainerCreate(t.Context(), &container.Config{Image: engine.AddImage("pause"), Labels: map[string]string{
		state.LabelType: state.TypeSandbox, kube.LabelContainerName: "POD", "app": "old", "annotation.a": "b",
	}}, &container.HostConfig{NetworkMode: "default"}, nil, nil, "k8s_POD_web_prod_u_3")
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.ContainerStart(t.Context(), made.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "prod", Uid: "u", Attempt: 3}
	status := statusOf(t, s, made.ID)
	compare(t, want, status.GetMetadata())
	compare(t, map[string]string{"app": "old"}, status.GetLabels())
	compare(t, map[string]string{"a": "b"}, status.GetAnnotations())
	if status.GetCreatedAt() <= 0 || status.GetNetwork().GetIp() == "" {
		t.Errorf("got %v", status)
	}
	items := listBy(t, s, nil)
	if len(items) != 1 {
		t.Fatalf("got %v, want one", items)
	}
	compare(t, want, items[0].GetMetadata())
	if _, err := s.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: made.ID}); err != nil {
		t.Error(err)
	}
	if _, err := s.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: made.ID}); err != nil {
		t.Error(err)
	}
	if len(engine.Containers()) != 0 || len(plugin.calls) == 0 {
		t.Errorf("got %v left and network calls %v", engine.Containers(), plugin.calls)
	}
}
