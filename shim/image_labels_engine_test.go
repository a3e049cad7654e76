package shim_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/shim"
)

// labelled creates an image with labels, which any image author can do.
func labelled(t *testing.T, c *cri, labels map[string]string) string {
	t.Helper()
	from, err := c.engine.ContainerCreate(t.Context(), &container.Config{Image: testImage}, &container.HostConfig{}, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	ref := "crishim.test/labelled:" + strings.ToLower(rand.Text())
	_, err = c.engine.ContainerCommit(t.Context(), from.ID, container.CommitOptions{Reference: ref, Config: &container.Config{Labels: labels}})
	if err := c.engine.ContainerRemove(t.Context(), from.ID, container.RemoveOptions{Force: true}); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testTimeout)
		defer cancel()
		if _, err := c.engine.ImageRemove(ctx, ref, image.RemoveOptions{Force: true}); err != nil {
			t.Errorf("remove the image: %v", err)
		}
	})
	return ref
}

// plain runs a container like `docker run`.
func plain(t *testing.T, c *cri, image string) string {
	t.Helper()
	return runForeign(t, c, "", &container.Config{Image: image, Cmd: []string{"sh", "-c", "echo hello; " + idle}}, &container.HostConfig{NetworkMode: "none"})
}

// An engine adds the labels of an image to its containers. They must not make a container outside the shim a pod
// container or a sandbox.
func TestAnImagesLabelsMakeNoContainerAPodsOnEngine(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	logs := t.TempDir()
	path := filepath.Join(logs, "pods", "0.log")
	labels := map[string]string{
		"io.kubernetes.docker.type": "container", "io.kubernetes.sandbox.id": p.id, "io.kubernetes.container.logpath": path, "io.crishim.log-directory": logs,
		"io.crishim.sandbox-id": p.id, "io.crishim.name": "app", "io.crishim.uid": p.config.GetMetadata().GetUid(), "io.kubernetes.container.name": "app",
	}
	member := plain(t, c, labelled(t, c, labels))
	box := plain(t, c, labelled(t, c, map[string]string{
		"io.kubernetes.docker.type": "podsandbox", "io.crishim.name": p.config.GetMetadata().GetName(), "io.crishim.uid": p.config.GetMetadata().GetUid(),
	}))
	d := newDaemonWith(t, "", shim.Options{Network: shim.NetworkOptions{Plugin: shim.PluginBridge}}) // shim/logs tests how serve writes logs
	for name, c := range map[string]*cri{"one command": c, "serve": d.cri} {
		list, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: p.id}})
		if err != nil || len(list.GetContainers()) != 0 {
			t.Errorf("%s: containers: got %v, %v", name, list, err)
		}
		boxes, err := c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: box}})
		if err != nil || len(boxes.GetItems()) != 0 {
			t.Errorf("%s: pods: got %v, %v", name, boxes, err)
		}
		stats, err := c.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{Id: member}})
		if err != nil || len(stats.GetStats()) != 0 {
			t.Errorf("%s: stats: got %v, %v", name, stats, err)
		}
		for call, err := range map[string]error{
			"status":  second(c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: member})),
			"pod":     second(c.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: box})),
			"exec":    second(c.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: member, Cmd: []string{"true"}})),
			"forward": second(c.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: box, Port: []int32{80}})),
			"kill":    second(c.own.SignalContainer(t.Context(), &api.SignalContainerRequest{ContainerId: member, Signal: "KILL"})),
			"restart": second(c.own.RestartContainer(t.Context(), &api.RestartContainerRequest{ContainerId: member})),
		} {
			if status.Code(err) != codes.NotFound {
				t.Errorf("%s: %s: got %v, want NotFound", name, call, err)
			}
		}
		// Stop and remove succeed for missing objects.
		for call, err := range map[string]error{
			"stop":       second(c.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: member})),
			"remove":     second(c.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: member})),
			"stop pod":   second(c.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: box})),
			"remove pod": second(c.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box})),
			"its pod":    second(c.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})),
		} {
			if err != nil {
				t.Errorf("%s: %s: %v", name, call, err)
			}
		}
	}
	for _, id := range []string{member, box} {
		if detail, err := c.engine.ContainerInspect(t.Context(), id); err != nil || !detail.State.Running {
			t.Errorf("%s was stopped: %v", id, err)
		}
	}
	if made, err := os.ReadDir(logs); err != nil || len(made) != 0 {
		t.Errorf("the shim made what an image wanted: %v, %v", made, err)
	}
}

func second[T any](_ T, err error) error { return err }

// A pod's container has the requested labels and annotations, and no limits, mounts or logs from the labels of its
// image.
func TestAnImagesLabelsSayNothingAboutAPodsContainerOnEngine(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := shell("app", idle)
	config.LogPath = ""
	config.Labels, config.Annotations = map[string]string{"app": "x"}, map[string]string{"note": "y"}
	config.Image.Image = labelled(t, c, map[string]string{
		"io.crishim.resource-limits": `{"files":{"memory.x/../../../../../../../../../../..` + victim + `":"gone"}}`,
		"io.crishim.image-mounts":    `[{"path":"/trap","id":"sha256:1"}]`, "io.kubernetes.container.logpath": "/trap", "io.crishim.log-directory": "/", "io.crishim.label.app": "trap",
		"annotation.note": "trap", "annotation.io.kubernetes.container.preStopHandler": "{}", "io.kubernetes.pod.name": "etcd", "maintainer": "trap", "io.crishim.helper": "",
	})
	id := p.start(t, config)
	s := c.status(t, id)
	if diff := cmp.Diff(config.GetLabels(), s.GetLabels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(config.GetAnnotations(), s.GetAnnotations()); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if len(s.GetMounts()) != 0 || s.GetLogPath() != "" {
		t.Errorf("got mounts %v and log %q", s.GetMounts(), s.GetLogPath())
	}
	for selector, want := range map[string]int{"app=x": 1, "app=trap": 0, "maintainer=trap": 0, "io.kubernetes.pod.name=etcd": 0} {
		key, value, _ := strings.Cut(selector, "=")
		list, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id, LabelSelector: map[string]string{key: value}}})
		if err != nil || len(list.GetContainers()) != want {
			t.Errorf("%s: got %v, %v", selector, list, err)
		}
	}
	copied, err := c.own.CopyContainer(t.Context(), &api.CopyContainerRequest{ContainerId: id, PodSandboxId: p.id, Name: "copy", Command: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if s := c.status(t, copied.GetContainerId()); len(s.GetLabels()) != 1 || len(s.GetAnnotations()) != 1 {
		t.Errorf("the copy: got %v %v", s.GetLabels(), s.GetAnnotations())
	}
	if content, err := os.ReadFile(victim); err != nil || string(content) != "precious" {
		t.Errorf("a file of the node: got %q, %v", content, err)
	}
}
