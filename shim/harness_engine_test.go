package shim_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim"
	"github.com/crishim/crishim/shim/docker"
)

// testImage is the busybox image from hack/engine.sh. It has a user alice with uid 1000, who is also in group extra,
// gid 1234.
const testImage = "busybox:crishim"

// testTimeout limits waits for quick operations and allows for slow machines.
const testTimeout = 90 * time.Second

// cri is an embedded shim on the real engine with clients for both services.
type cri struct {
	runtimeapi.RuntimeServiceClient
	image  runtimeapi.ImageServiceClient
	engine *docker.Client
	own    api.CrishimClient
}

func newCRI(t *testing.T) *cri {
	t.Helper()
	return newCRIWith(t, shim.Options{})
}

func newCRIWith(t *testing.T, o shim.Options) *cri {
	t.Helper()
	engine := enginetest.Require(t)
	e, err := shim.StartEmbedded(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close the shim: %v", err)
		}
	})
	conn := dial(t, e)
	return &cri{runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn), engine, api.NewCrishimClient(conn)}
}

// pause pauses a container of the engine.
func pause(t *testing.T, engine *docker.Client, id string) {
	t.Helper()
	if err := freeze(t, func() error { return engine.ContainerPause(t.Context(), id) }); err != nil {
		t.Fatal(err)
	}
}

// freeze tries to pause a container. runc gives up when a process forks at that moment on a busy machine with cgroup v1.
func freeze(t *testing.T, try func() error) (err error) {
	t.Helper()
	test.Until(t, "a pause", func() bool {
		err = try()
		return err == nil || !strings.Contains(err.Error(), "unable to freeze")
	})
	return err
}

func dial(t *testing.T, e *shim.Embedded) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(e.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// pod is a sandbox that is removed after the test.
type pod struct {
	cri    *cri
	id     string
	config *runtimeapi.PodSandboxConfig
}

// pod runs a sandbox. change may be nil.
func (c *cri) pod(t *testing.T, change func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	return c.podWith(t, "", change)
}

func (c *cri) podWith(t *testing.T, handler string, change func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	name := strings.ToLower("pod-" + rand.Text()[:12])
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "test", Uid: name + "-uid"},
		Hostname:     name,
		LogDirectory: filepath.Join(t.TempDir(), "logs"),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{}},
	}
	if change != nil {
		change(config)
	}
	r, err := c.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		t.Fatalf("run sandbox: %v", err)
	}
	p := &pod{c, r.GetPodSandboxId(), config}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testTimeout)
		defer cancel()
		if _, err := c.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Errorf("stop sandbox: %v", err)
		}
		if _, err := c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Errorf("remove sandbox: %v", err)
		}
	})
	return p
}

func shell(name, script string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: testImage},
		Command:  []string{"sh", "-c", script},
		LogPath:  name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
}

// idle is a script that runs until a signal and then exits at once.
const idle = "trap 'exit 0' TERM INT; while :; do sleep 1 & wait; done"

func (p *pod) create(t *testing.T, config *runtimeapi.ContainerConfig) string {
	t.Helper()
	id, err := p.tryCreate(t, config)
	if err != nil {
		t.Fatalf("create %s: %v", config.GetMetadata().GetName(), err)
	}
	return id
}

func (p *pod) tryCreate(t *testing.T, config *runtimeapi.ContainerConfig) (string, error) {
	t.Helper()
	r, err := p.cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, Config: config, SandboxConfig: p.config,
	})
	return r.GetContainerId(), err
}

func (p *pod) start(t *testing.T, config *runtimeapi.ContainerConfig) string {
	t.Helper()
	id := p.create(t, config)
	if _, err := p.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatalf("start %s: %v", config.GetMetadata().GetName(), err)
	}
	return id
}

func (c *cri) status(t *testing.T, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	r, err := c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	return r.GetStatus()
}

func (c *cri) exited(t *testing.T, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	deadline := time.After(testTimeout)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if s := c.status(t, id); s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			return s
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("container %s has not ended", id)
		}
	}
}

func (p *pod) output(t *testing.T, config *runtimeapi.ContainerConfig) string {
	t.Helper()
	id := p.start(t, config)
	p.cri.exited(t, id)
	return p.cri.logs(t, id)
}

// logs reads a container's output from the engine.
func (c *cri) logs(t *testing.T, id string) string {
	t.Helper()
	r, err := c.engine.ContainerLogs(t.Context(), id, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := stdcopy.StdCopy(&b, &b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// execOutput runs a script in a container through the engine, not the shim, and returns its output.
func execOutput(t *testing.T, c *cri, id, script string) string {
	t.Helper()
	e, err := c.engine.ContainerExecCreate(t.Context(), id, container.ExecOptions{AttachStdout: true, AttachStderr: true, Cmd: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.engine.ContainerExecAttach(t.Context(), e.ID, container.ExecAttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var b bytes.Buffer
	if _, err := stdcopy.StdCopy(&b, &b, conn.Reader); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// execSync runs a script in a container as a probe does.
func (c *cri) execSync(t *testing.T, id, script string) *runtimeapi.ExecSyncResponse {
	t.Helper()
	r, err := c.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", script}, Timeout: 30})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// forgetImage removes a test image during clean-up before the pod is removed. It removes the containers of the image
// first.
func forgetImage(t *testing.T, c *cri, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testTimeout)
	defer cancel()
	if _, err := c.image.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: id}}); err != nil {
		t.Errorf("remove image %s: %v", id, err)
	}
}
