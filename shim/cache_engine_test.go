package shim_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim"
	"github.com/crishim/crishim/shim/docker"
)

var removeName = image.RemoveOptions{}

// daemon is a shim as serve runs it. It counts the lists that it requests from the engine.
type daemon struct {
	*cri
	lists *atomic.Int64
}

// newDaemon starts a daemon for the engine at host, or for the default engine if host is "".
func newDaemon(t *testing.T, host string) daemon {
	t.Helper()
	return newDaemonWith(t, host, shim.Options{})
}

func newDaemonWith(t *testing.T, host string, o shim.Options) daemon {
	t.Helper()
	engine := enginetest.Require(t)
	var lists atomic.Int64
	o.Daemon, o.Engine = true, docker.Options{Host: host, Observe: func(operation string, _ time.Duration, _ error) {
		if operation == "list_containers" {
			lists.Add(1)
		}
	}}
	s, err := shim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(test.SocketDir(t), "cri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), <-served); err != nil {
			t.Errorf("close the shim: %v", err)
		}
	})
	conn, err := grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return daemon{&cri{runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn), engine, api.NewCrishimClient(conn)}, &lists}
}

func (d daemon) list(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	if _, err := d.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ListContainers(ctx, &runtimeapi.ListContainersRequest{}); err != nil {
		t.Fatal(err)
	}
	stream, err := d.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Fatalf("stream containers: %v", err)
	}
}

// free waits until all lists are cached. Tests of other packages change the same engine concurrently, so the first
// attempt may fail.
func (d daemon) free(t *testing.T) {
	t.Helper()
	test.Until(t, "lists are answered from memory", func() bool {
		before := d.lists.Load()
		d.list(t)
		return d.lists.Load() == before
	})
}

func TestListsAreAnsweredFromMemory(t *testing.T) {
	d := newDaemon(t, "")
	p := d.pod(t, nil)
	p.start(t, shell("app", idle))
	d.free(t)
}

func (d daemon) listed(t *testing.T, id string) string {
	t.Helper()
	list, err := d.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.GetContainers() {
		if c.GetId() == id {
			return c.GetState().String()
		}
	}
	return "gone"
}

func TestOwnChangesAreSeenAtOnce(t *testing.T) {
	d := newDaemon(t, "")
	p := d.pod(t, nil)
	d.free(t)
	state := func(id string) string {
		t.Helper()
		listed := d.listed(t, id)
		if listed == "gone" {
			return listed
		}
		if s := d.status(t, id); s.GetState().String() != listed {
			t.Errorf("the list has %s, the status %s", listed, s.GetState())
		}
		return listed
	}
	for round := range 5 {
		config := shell("app", idle)
		config.Metadata.Attempt = uint32(round)
		id := p.create(t, config)
		if got := state(id); got != "CONTAINER_CREATED" {
			t.Errorf("after create: got %s", got)
		}
		if _, err := d.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		if got := state(id); got != "CONTAINER_RUNNING" {
			t.Errorf("after start: got %s", got)
		}
		change := &runtimeapi.LinuxContainerResources{CpuShares: int64(100 + round)}
		if _, err := d.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: change}); err != nil {
			t.Fatal(err)
		}
		if got := d.status(t, id).GetResources().GetLinux().GetCpuShares(); got != change.GetCpuShares() {
			t.Errorf("after update: got %d cpu shares, want %d", got, change.GetCpuShares())
		}
		if _, err := d.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 10}); err != nil {
			t.Fatal(err)
		}
		if got := state(id); got != "CONTAINER_EXITED" {
			t.Errorf("after stop: got %s", got)
		}
		if _, err := d.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		if got := state(id); got != "gone" {
			t.Errorf("after remove: got %s", got)
		}
		if _, err := d.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id}); status.Code(err) != codes.NotFound {
			t.Errorf("status after remove: got %v", err)
		}
	}
	broken := shell("broken", "")
	broken.Command = []string{"/no/such/program"}
	id := p.create(t, broken)
	if _, err := d.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err == nil {
		t.Error("a program that is not there was started")
	}
	if got := state(id); got != "CONTAINER_EXITED" {
		t.Errorf("after a start that failed: got %s", got)
	}
	if _, err := d.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	if got := d.podStatus(t, p.id).GetStatus(); got.GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || got.GetNetwork().GetIp() != "" {
		t.Errorf("after the pod's stop: got %v", got)
	}
}

func (c *cri) podStatus(t *testing.T, id string) *runtimeapi.PodSandboxStatusResponse {
	t.Helper()
	r, err := c.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWhatOthersDoToPodsIsSeen(t *testing.T) {
	d := newDaemon(t, "")
	p := d.pod(t, nil)
	id := p.start(t, shell("app", idle))
	d.free(t)
	ctx, engine := t.Context(), d.engine

	pause(t, engine, id)
	if err := engine.ContainerUnpause(ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := engine.ContainerKill(ctx, id, "KILL"); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "a kill is seen", func() bool {
		return d.listed(t, id) == "CONTAINER_EXITED"
	})
	if s := d.status(t, id); s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetExitCode() != 137 {
		t.Errorf("got %v", s)
	}
	d.free(t)
	if err := engine.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "a start is seen", func() bool { return d.listed(t, id) == "CONTAINER_RUNNING" })
	tag := "crishim.test/" + strings.ToLower(p.config.GetMetadata().GetName()) + ":1"
	if err := engine.ImageTag(ctx, testImage, tag); err != nil {
		t.Fatal(err)
	}
	hasTag := func() bool {
		r, err := d.image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: testImage}})
		return err == nil && strings.Contains(strings.Join(r.GetImage().GetRepoTags(), " "), tag)
	}
	test.Until(t, "a new tag is seen", hasTag)
	if _, err := engine.ImageRemove(ctx, tag, removeName); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "a tag that was taken away is seen", func() bool { return !hasTag() })
	before := d.podStatus(t, p.id).GetStatus().GetNetwork().GetIp()
	if err := engine.NetworkDisconnect(ctx, "bridge", p.id, true); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "a lost network is seen", func() bool { return d.podStatus(t, p.id).GetStatus().GetNetwork().GetIp() == "" })
	if err := engine.NetworkConnect(ctx, "bridge", p.id, nil); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "a network that came back is seen", func() bool { return d.podStatus(t, p.id).GetStatus().GetNetwork().GetIp() != "" })
	if before == "" {
		t.Error("the pod had no address to begin with")
	}
	if err := engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "a removal is seen", func() bool {
		return d.listed(t, id) == "gone"
	})
}

func TestTheOutOfMemoryReasonIsSeen(t *testing.T) {
	d := newDaemon(t, "")
	p := d.pod(t, nil)
	d.free(t)
	// A shell that cannot allocate memory exits with status 1 before the kernel kills it; the loop then tries another.
	// The container ends after the engine has reported the OOM kill. If it ended at once, the engine could miss the
	// report.
	config := shell("hungry", "until [ -e /go ]; do sleep .1; done; until sh -c 'x=a; while :; do x=$x$x; done'; [ $? = 137 ]; do :; done; "+idle)
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 20 << 20}
	id := p.create(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out := filters.NewArgs(filters.Arg("type", "container"), filters.Arg("event", "oom"), filters.Arg("container", id))
	reported, failed := d.engine.Events(ctx, events.ListOptions{Filters: out, Since: strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10)})
	if _, err := d.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	execOutput(t, d.cri, id, "touch /go") // the engine does not see an OOM kill before the start is complete
	select {
	case <-reported:
	case err := <-failed:
		t.Fatalf("the engine reports no lack of memory: %v", err)
	}
	if err := d.engine.ContainerKill(ctx, id, "KILL"); err != nil && !errdefs.IsConflict(err) { // the kernel may have killed it
		t.Fatal(err)
	}
	if s := d.exited(t, id); s.GetReason() != "OOMKilled" || s.GetExitCode() != 137 {
		t.Errorf("got %v", s)
	}
}

// Kubelets that use events read the container statuses and the timestamp of a pod's status.
func TestPodStatusForEventedKubelets(t *testing.T) {
	d := newDaemon(t, "")
	p := d.pod(t, nil)
	start := time.Now().Add(-time.Minute).UnixNano()
	one, two := p.start(t, shell("one", idle)), p.create(t, shell("two", idle))
	d.free(t)
	r := d.podStatus(t, p.id)
	got := map[string]runtimeapi.ContainerState{}
	for _, s := range r.GetContainersStatuses() {
		got[s.GetId()] = s.GetState()
	}
	if len(got) != 2 || got[one] != runtimeapi.ContainerState_CONTAINER_RUNNING || got[two] != runtimeapi.ContainerState_CONTAINER_CREATED {
		t.Errorf("got the containers %v", got)
	}
	if r.GetTimestamp() < start || r.GetTimestamp() > time.Now().Add(time.Minute).UnixNano() {
		t.Errorf("got the time %d", r.GetTimestamp())
	}
	if embedded := newCRI(t).podStatus(t, p.id); len(embedded.GetContainersStatuses()) != 0 || embedded.GetTimestamp() != 0 {
		t.Errorf("a shim for one command pays for %v", embedded)
	}
}

// cuttable is a proxy between a shim and its engine that can be disconnected.
type cuttable struct {
	host, path string
	mu         sync.Mutex
	conns      []net.Conn
	listener   net.Listener
	wg         sync.WaitGroup
}

func newCuttable(t *testing.T) *cuttable {
	t.Helper()
	host := enginetest.Require(t).Endpoint().Host
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		t.Skip("the engine is not on a unix socket")
	}
	c := &cuttable{host: path, path: filepath.Join(test.SocketDir(t), "engine.sock")}
	c.join(t)
	t.Cleanup(c.cut)
	return c
}

func (c *cuttable) join(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", c.path)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.listener = l
	c.mu.Unlock()
	c.wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", c.host)
			if err != nil {
				near.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, near, far)
			c.mu.Unlock()
			c.wg.Go(func() { io.Copy(far, near); far.Close() })
			c.wg.Go(func() { io.Copy(near, far); near.Close() })
		}
	})
}

// cut disconnects the engine and closes all connections.
func (c *cuttable) cut() {
	c.mu.Lock()
	c.listener.Close()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
	c.mu.Unlock()
	c.wg.Wait()
}

func TestTheCacheEndsWithTheEngine(t *testing.T) {
	between := newCuttable(t)
	d := newDaemon(t, "unix://"+between.path)
	direct := newCRI(t)
	p := direct.pod(t, nil)
	id := p.start(t, shell("app", idle))
	test.Until(t, "the pod is seen", func() bool {
		_, err := d.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		return err == nil
	})
	d.free(t)

	between.cut()
	test.Until(t, "the engine is missed", func() bool {
		_, err := d.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		return status.Code(err) == codes.Unavailable
	})
	r, err := d.Status(t.Context(), &runtimeapi.StatusRequest{})
	if err != nil || r.GetStatus().GetConditions()[0].GetStatus() {
		t.Errorf("without an engine: got %v, %v", r, err)
	}
	if _, err := direct.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 10}); err != nil {
		t.Fatal(err)
	}
	between.join(t)
	test.Until(t, "the engine is back", func() bool {
		s, err := d.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			return false
		}
		if s.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Fatalf("what was missed is told as %s", s.GetStatus().GetState())
		}
		return true
	})
	d.free(t)
	if _, err := d.engine.ContainerInspect(context.WithoutCancel(t.Context()), id); errdefs.IsNotFound(err) {
		t.Error("the container is gone")
	}
}
