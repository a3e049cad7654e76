package shim_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/test"
)

// adopted creates an engine container like those of another shim.
func adopted(t *testing.T, c *cri, name string, config *container.Config, host *container.HostConfig) string {
	t.Helper()
	config.Image = testImage
	return runForeign(t, c, name, config, host)
}

// runForeign runs an engine container that the shim has not created. It is removed after the test.
func runForeign(t *testing.T, c *cri, name string, config *container.Config, host *container.HostConfig) string {
	t.Helper()
	made, err := c.engine.ContainerCreate(t.Context(), config, host, nil, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testTimeout)
		defer cancel()
		_ = c.engine.ContainerRemove(ctx, made.ID, container.RemoveOptions{Force: true})
	})
	if err := c.engine.ContainerStart(t.Context(), made.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// TestContainerOfNoPodOnEngine checks that CRI reports such a container as missing, and that only an error detail tells
// crishim's client that the engine has it.
func TestContainerOfNoPodOnEngine(t *testing.T) {
	c := newCRI(t)
	name := "plain-" + rand.Text()
	runForeign(t, c, name, &container.Config{Image: testImage, Cmd: []string{"sleep", "60"}}, nil)
	for ref, known := range map[string]bool{name: true, "nosuch-" + name: false} {
		_, err := c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: ref})
		details := status.Convert(err).Details()
		if status.Code(err) != codes.NotFound || (len(details) == 1) != known {
			t.Errorf("%s: got %v with %v", ref, err, details)
		}
	}
}

// labelsOf returns the labels that dockershim 1.23 and cri-dockerd write on all containers of a kubelet's pod, and on
// the given one.
func labelsOf(pod *runtimeapi.PodSandboxMetadata, kind, name string, more map[string]string) map[string]string {
	labels := map[string]string{
		"io.kubernetes.pod.name": pod.GetName(), "io.kubernetes.pod.namespace": pod.GetNamespace(), "io.kubernetes.pod.uid": pod.GetUid(),
		"io.kubernetes.docker.type": kind, "io.kubernetes.container.name": name,
	}
	for k, v := range more {
		labels[k] = v
	}
	return labels
}

// TestPodsOfOtherShimsOnEngine checks that all RPCs work for pods with the names and labels of dockershim 1.23 and
// cri-dockerd.
func TestPodsOfOtherShimsOnEngine(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]struct {
		mode    container.NetworkMode
		suffix  string // suffix of names after a conflict
		network runtimeapi.NamespaceMode
		hasIP   bool
	}{
		"on the engine's bridge": {"default", "", runtimeapi.NamespaceMode_POD, true},
		"through CNI":            {"none", "_1a2b3c4d", runtimeapi.NamespaceMode_POD, false},
		"on the host's network":  {"host", "", runtimeapi.NamespaceMode_NODE, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCRI(t)
			pod := &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "prod", Uid: strings.ToLower(rand.Text()), Attempt: 1}
			full := func(container string, attempt string) string {
				return strings.Join([]string{"k8s", container, pod.GetName(), pod.GetNamespace(), pod.GetUid(), attempt}, "_") + made.suffix
			}
			box := adopted(t, c, full("POD", "1"), &container.Config{
				Cmd: []string{"sh", "-c", idle}, // ends on a signal like a pause image
				Labels: labelsOf(pod, "podsandbox", "POD", map[string]string{
					"app": "web", "annotation.kubernetes.io/config.source": "api",
				}),
			}, &container.HostConfig{NetworkMode: made.mode, IpcMode: "shareable", SecurityOpt: []string{"no-new-privileges"}})
			logPath := filepath.Join(t.TempDir(), "2.log")
			id := adopted(t, c, full("nginx", "2"), &container.Config{
				Cmd: []string{"sh", "-c", "echo hello; " + idle},
				Labels: labelsOf(pod, "container", "nginx", map[string]string{
					"io.kubernetes.sandbox.id": box, "io.kubernetes.container.logpath": logPath,
					"annotation.io.kubernetes.container.hash": "abc", "annotation.io.kubernetes.container.restartCount": "2",
				}),
			}, &container.HostConfig{NetworkMode: container.NetworkMode("container:" + box), IpcMode: container.IpcMode("container:" + box)})
			detail, err := c.engine.ContainerInspect(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			// A serve of another test may write this log already.
			if err := errors.Join(os.Symlink(detail.LogPath, logPath+".new"), os.Rename(logPath+".new", logPath)); err != nil {
				t.Fatalf("link the log: %v", err)
			}

			podLabels := map[string]string{"app": "web", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "prod", "io.kubernetes.pod.uid": pod.GetUid()}
			boxes, err := c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": pod.GetUid()}}})
			if err != nil || len(boxes.GetItems()) != 1 {
				t.Fatalf("pods: got %v, %v, want one", boxes, err)
			}
			listed := boxes.GetItems()[0]
			if diff := cmp.Diff(&runtimeapi.PodSandbox{
				Id: box, Metadata: pod, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: listed.GetCreatedAt(),
				Labels: podLabels, Annotations: map[string]string{"kubernetes.io/config.source": "api"},
			}, listed, protocmp.Transform()); diff != "" || listed.GetCreatedAt() <= 0 {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			s, err := c.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: box})
			if err != nil {
				t.Fatal(err)
			}
			options := s.GetStatus().GetLinux().GetNamespaces().GetOptions()
			if diff := cmp.Diff(pod, s.GetStatus().GetMetadata(), protocmp.Transform()); diff != "" || (s.GetStatus().GetNetwork().GetIp() != "") != made.hasIP ||
				options.GetNetwork() != made.network || options.GetPid() != runtimeapi.NamespaceMode_CONTAINER || options.GetIpc() != runtimeapi.NamespaceMode_POD {
				t.Errorf("status of the pod: got %v %s", s.GetStatus(), diff)
			}

			containers, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: box}})
			if err != nil || len(containers.GetContainers()) != 1 {
				t.Fatalf("containers: got %v, %v, want one", containers, err)
			}
			own := containers.GetContainers()[0]
			status := c.status(t, id)
			if own.GetId() != id || own.GetMetadata().GetName() != "nginx" || own.GetMetadata().GetAttempt() != 2 || own.GetPodSandboxId() != box ||
				own.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || own.GetAnnotations()["io.kubernetes.container.hash"] != "abc" || own.GetImageId() == "" {
				t.Errorf("container: got %v", own)
			}
			if diff := cmp.Diff(own.GetMetadata(), status.GetMetadata(), protocmp.Transform()); diff != "" || status.GetLogPath() != logPath ||
				status.GetAnnotations()["io.kubernetes.container.restartCount"] != "2" || status.GetStartedAt() <= 0 {
				t.Errorf("status of the container: got %v %s", status, diff)
			}

			out, err := c.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"echo", "inside"}})
			if err != nil || string(out.GetStdout()) != "inside\n" {
				t.Errorf("exec: got %v, %v", out, err)
			}
			for _, ask := range []func() error{
				func() error {
					_, err := c.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"sh"}, Stdout: true})
					return err
				},
				func() error {
					_, err := c.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdout: true})
					return err
				},
				func() error {
					_, err := c.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: box, Port: []int32{80}})
					return err
				},
			} {
				if err := ask(); err != nil {
					t.Errorf("a session: %v", err)
				}
			}
			test.Until(t, "the log", func() bool { return privateLog(t, c, id) == "hello" })
			if r, err := c.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: id}); err != nil || r.GetStats().GetMemory().GetUsageBytes().GetValue() == 0 {
				t.Errorf("stats: got %v, %v", r, err)
			}

			if _, err := c.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 60}); err != nil {
				t.Error(err)
			}
			if status := c.status(t, id); status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || status.GetExitCode() != 0 {
				t.Errorf("after the stop: got %v", status)
			}
			if _, err := c.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
				t.Error(err)
			}
			// Another shim on this engine may have created a log meanwhile, which is kept.
			if info, err := os.Lstat(logPath); err == nil && info.Mode().Type() == os.ModeSymlink {
				t.Error("the link to the log is still there")
			}
			for range 2 {
				if _, err := c.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: box}); err != nil {
					t.Error(err)
				}
			}
			if _, err := c.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box}); err != nil {
				t.Error(err)
			}
			for _, id := range []string{box, id} {
				if _, err := c.engine.ContainerInspect(t.Context(), id); err == nil {
					t.Errorf("%s is still on the engine", id)
				}
			}
		})
	}
}

// privateLog returns a container's output from the private service.
func privateLog(t *testing.T, c *cri, id string) string {
	t.Helper()
	records, err := c.own.ContainerLogs(t.Context(), &api.ContainerLogsRequest{ContainerId: id, Tail: -1})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for {
		record, err := records.Recv()
		if errors.Is(err, io.EOF) {
			return strings.Join(lines, "\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(record.GetText()))
	}
}

// TestOtherShimsKnowOurPods checks that all data that dockershim and cri-dockerd read of a pod has their format: the
// name with its six parts, the labels for lists and lookups, the prefix of annotations, and the network mode, which
// selects how a pod is torn down.
func TestOtherShimsKnowOurPods(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, func(config *runtimeapi.PodSandboxConfig) {
		config.Metadata.Attempt = 3
		config.Labels = map[string]string{"io.kubernetes.pod.name": config.GetMetadata().GetName(), "app": "web"}
		config.Annotations = map[string]string{"kubernetes.io/config.source": "api"}
	})
	config := shell("nginx", idle)
	config.Metadata.Attempt = 2
	config.Labels = map[string]string{"io.kubernetes.container.name": "nginx"}
	config.Annotations = map[string]string{"io.kubernetes.container.hash": "abc"}
	id := p.start(t, config)
	m := p.config.GetMetadata()
	for _, want := range []struct {
		id, container string
		attempt       uint32
		labels        map[string]string
		network       container.NetworkMode // "": one for the pod's network
	}{
		{p.id, "POD", 3, map[string]string{
			"io.kubernetes.docker.type": "podsandbox", "io.kubernetes.container.name": "POD", "io.kubernetes.pod.name": m.GetName(), "app": "web",
			"annotation.kubernetes.io/config.source": "api",
		}, ""},
		{id, "nginx", 2, map[string]string{
			"io.kubernetes.docker.type": "container", "io.kubernetes.container.name": "nginx", "io.kubernetes.sandbox.id": p.id,
			"io.kubernetes.container.logpath": filepath.Join(p.config.GetLogDirectory(), "nginx.log"), "annotation.io.kubernetes.container.hash": "abc",
		}, container.NetworkMode("container:" + p.id)},
	} {
		detail, err := c.engine.ContainerInspect(t.Context(), want.id)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(strings.TrimPrefix(detail.Name, "/"), "_")
		if diff := cmp.Diff([]string{"k8s", want.container, m.GetName(), m.GetNamespace(), m.GetUid(), strconv.Itoa(int(want.attempt))}, parts); diff != "" {
			t.Errorf("name (-want +got):\n%s", diff)
		}
		for key, value := range want.labels {
			if got := detail.Config.Labels[key]; got != value {
				t.Errorf("label %s: got %q, want %q", key, got, value)
			}
		}
		switch mode := detail.HostConfig.NetworkMode; {
		case want.network != "" && mode != want.network, want.network == "" && !mode.IsDefault() && !mode.IsBridge() && !mode.IsNone(): // newer engines say bridge for default
			t.Errorf("network mode: got %q", mode)
		}
	}
}
