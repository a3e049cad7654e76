package container

import (
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FuzzContainerConfig checks that each configuration is either rejected or creates a container whose status and list
// entry match it and that can be removed.
func FuzzContainerConfig(f *testing.F) {
	for _, text := range []string{
		`{}`,
		`{"metadata":{"name":"app","attempt":2},"image":{"image":"test.example/app:v1"},"command":["a"],"args":[""],"workingDir":"x","envs":[{"key":"A","value":"Yg=="},{"key":""}],"labels":{"a":"b"},"annotations":{"c":"d"},"logPath":"app.log","tty":true,"stdin":true}`,
		`{"metadata":{"name":"a_b"},"image":{"image":"test.example/app:v1"},"mounts":[{"containerPath":"/a","hostPath":"/b","readonly":true,"recursiveReadOnly":true,"propagation":"PROPAGATION_BIDIRECTIONAL"},{"containerPath":"","hostPath":".."}],"devices":[{"containerPath":"x","hostPath":"y","permissions":"z"}],"logPath":"../x"}`,
		`{"metadata":{"name":"app"},"image":{"image":"test.example/app:v1"},"stopSignal":"SIGRTMIN","linux":{"resources":{"cpuPeriod":"-1","memoryLimitInBytes":"-9223372036854775808","hugepageLimits":[{"pageSize":"2MB","limit":"1"}],"unified":{"a":"b"},"memorySwapLimitInBytes":"1","cpusetCpus":"x"},"securityContext":{"runAsUser":{"value":"-1"},"runAsGroup":{"value":"9223372036854775807"},"runAsUsername":"me","privileged":true,"capabilities":{"addCapabilities":["ALL","CAP_X",""]},"supplementalGroups":["-1"],"namespaceOptions":{"pid":"TARGET","targetId":"x"},"maskedPaths":[""],"seccomp":{"profileType":"Localhost"},"apparmor":{"profileType":"Localhost"},"selinuxOptions":{"level":"x"}}}}`,
		`{"metadata":{"name":"app"},"image":{"image":"test.example/app:v1"},"labels":{"io.kubernetes.sandbox.id":"x","annotation.a":"b"},"annotations":{"annotation.":""},"CDIDevices":[{"name":"x"}]}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		config := &runtimeapi.ContainerConfig{}
		if len(text) > 16<<10 || protojson.Unmarshal([]byte(text), config) != nil {
			return
		}
		fx := newFixture(t)
		before := len(fx.engine.Containers())
		request := &runtimeapi.CreateContainerRequest{PodSandboxId: fx.sandbox, Config: config, SandboxConfig: &runtimeapi.PodSandboxConfig{LogDirectory: "/nonexistent"}}
		r, err := fx.CreateContainer(t.Context(), request)
		if err != nil {
			if len(fx.engine.Containers()) != before {
				t.Errorf("refused, and something was left: %v", err)
			}
			return
		}
		id := r.GetContainerId()
		answer, err := fx.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := proto.Marshal(answer); err != nil {
			t.Error(err)
		}
		list, err := fx.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}})
		if err != nil || len(list.GetContainers()) != 1 {
			t.Fatalf("listed as %v, %v", list, err)
		}
		for _, got := range []interface {
			GetMetadata() *runtimeapi.ContainerMetadata
			GetLabels() map[string]string
			GetAnnotations() map[string]string
		}{answer.GetStatus(), list.GetContainers()[0]} {
			want := &runtimeapi.Container{Metadata: config.GetMetadata(), Labels: config.GetLabels(), Annotations: config.GetAnnotations()}
			if have := (&runtimeapi.Container{Metadata: got.GetMetadata(), Labels: got.GetLabels(), Annotations: got.GetAnnotations()}); !proto.Equal(want, have) {
				t.Errorf("%T: got %v, want %v", got, have, want)
			}
		}
		if _, err := fx.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
	})
}
