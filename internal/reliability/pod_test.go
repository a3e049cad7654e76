package reliability

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/docker"
)

// A host checks for leftovers of pods on the machine, independent of any shim.
type host struct {
	engine *docker.Client
}

func newHost(t testing.TB) host {
	t.Helper()
	return host{enginetest.Require(t)}
}

func (h host) endpoint() string { return h.engine.Endpoint().Host }

// A pod is a test's pod config, and the ids of the resulting objects.
type pod struct {
	host   host
	config *runtimeapi.PodSandboxConfig

	label string // label of all engine containers of the pod, and of no others

	id, containerID string   // "": not created or not reported
	traces          []string // no mount may contain one of these at the end
}

func (h host) pod(t testing.TB) *pod {
	t.Helper()
	name := "rel-" + strings.ToLower(rand.Text()[:12])
	p := &pod{host: h, label: "test=" + name, config: &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "reliability", Uid: name},
		Hostname:     name,
		LogDirectory: filepath.Join(t.TempDir(), "logs"),
		Labels:       map[string]string{"test": name},
		Linux:        &runtimeapi.LinuxPodSandboxConfig{},
	}}
	t.Cleanup(func() { p.sweep(t) })
	return p
}

func (p *pod) uid() string { return p.config.GetMetadata().GetUid() }

func (p *pod) container() *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Labels:   p.config.GetLabels(),
		Image:    &runtimeapi.ImageSpec{Image: testImage},
		Command:  []string{"sh", "-c", "trap 'exit 0' TERM INT; echo ready; while :; do sleep 1 & wait; done"},
		LogPath:  "main.log",
		Linux:    &runtimeapi.LinuxContainerConfig{},
	}
}

func (p *pod) run(ctx context.Context, s runtimeapi.RuntimeServiceClient) error {
	r, err := s.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	p.id = r.GetPodSandboxId()
	return err
}

func (p *pod) create(ctx context.Context, s runtimeapi.RuntimeServiceClient) error {
	r, err := s.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, Config: p.container(), SandboxConfig: p.config})
	p.containerID = r.GetContainerId()
	return err
}

func (p *pod) start(ctx context.Context, s runtimeapi.RuntimeServiceClient) error {
	_, err := s.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: p.containerID})
	return err
}

func (p *pod) stop(ctx context.Context, s runtimeapi.RuntimeServiceClient) error {
	_, err := s.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
	return err
}

func (p *pod) remove(ctx context.Context, s runtimeapi.RuntimeServiceClient) error {
	_, err := s.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
	return err
}

// onEngine returns the pod's containers in the engine, and whether they run.
func (p *pod) onEngine(ctx context.Context) (map[string]bool, error) {
	list, err := p.host.engine.ContainerList(ctx, container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", p.label)),
	})
	found := map[string]bool{}
	for _, c := range list {
		found[c.ID] = c.State == container.StateRunning
		p.trace(ctx, c.ID)
	}
	return found, err
}

// runs returns an error unless a command runs in the pod's container.
func (p *pod) runs(ctx context.Context, command string) error {
	r, err := p.host.engine.ContainerTop(ctx, p.containerID, nil)
	if err == nil && !strings.Contains(fmt.Sprint(r.Processes), command) {
		err = fmt.Errorf("%q does not run", command)
	}
	return err
}

// trace records paths outside the engine that belong to an engine container. The mount point of a network namespace may
// remain for a minute, because the engine removes those periodically.
func (p *pod) trace(ctx context.Context, id string) {
	c, err := p.host.engine.ContainerInspect(ctx, id)
	if err != nil {
		return
	}
	p.traces = append(p.traces, c.ID)
	if c.NetworkSettings != nil && c.NetworkSettings.SandboxKey != "" && c.HostConfig.NetworkMode != "host" {
		p.traces = append(p.traces, c.NetworkSettings.SandboxKey)
	}
}

// listed returns the pod's sandboxes and containers from a shim's lists and checks that each has a matching status.
func (p *pod) listed(ctx context.Context, s runtimeapi.RuntimeServiceClient) (map[string]bool, error) {
	found := map[string]bool{}
	selector := map[string]string{"test": p.uid()}
	pods, err := s.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: selector}})
	if err != nil {
		return nil, err
	}
	for _, b := range pods.GetItems() {
		found[b.GetId()] = b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		r, err := s.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: b.GetId()})
		if err != nil {
			return nil, err
		}
		if r.GetStatus().GetState() != b.GetState() {
			return nil, fmt.Errorf("sandbox %s is listed as %v, its status says %v", b.GetId(), b.GetState(), r.GetStatus().GetState())
		}
		containers, err := s.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: b.GetId()}})
		if err != nil {
			return nil, err
		}
		for _, c := range containers.GetContainers() {
			found[c.GetId()] = c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
			r, err := s.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
			if err != nil {
				return nil, err
			}
			if r.GetStatus().GetState() != c.GetState() {
				return nil, fmt.Errorf("container %s is listed as %v, its status says %v", c.GetId(), c.GetState(), r.GetStatus().GetState())
			}
		}
	}
	return found, nil
}

func (p *pod) sandboxes(ctx context.Context, s runtimeapi.RuntimeServiceClient) ([]string, error) {
	r, err := s.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"test": p.uid()}}})
	var ids []string
	for _, b := range r.GetItems() {
		ids = append(ids, b.GetId())
	}
	return ids, err
}

// left returns an error while something of the pod remains on the machine.
func (p *pod) left(ctx context.Context) error {
	found, err := p.onEngine(ctx)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("containers on the engine: %v", found)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	slices.Sort(p.traces)
	p.traces = slices.Compact(p.traces)
	for _, trace := range p.traces {
		if strings.Contains(string(mounts), trace) {
			return fmt.Errorf("a mount of %s", trace)
		}
	}
	// The log belongs to the caller. No other file may remain.
	files, _ := os.ReadDir(p.config.GetLogDirectory())
	for _, f := range files {
		if f.Name() != "main.log" {
			return fmt.Errorf("%s in the log directory", f.Name())
		}
	}
	return nil
}

// sweep removes leftovers of a failed test, so that they do not affect others.
func (p *pod) sweep(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	found, err := p.onEngine(ctx)
	if err != nil {
		t.Log(err)
	}
	for id := range found {
		if err := p.host.engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			t.Log(err)
		}
	}
}
