package stats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/state"
)

// parallel bounds the questions to the engine at one time.
const parallel = 8

// target is a container to measure, a pod's or the sandbox itself.
type target struct {
	c       container.InspectResponse
	member  state.Container // of a pod's container
	sandbox state.Sandbox   // of a sandbox
}

// sandboxID is the sandbox the target belongs to or is.
func (t target) sandboxID() string {
	if t.member.SandboxID != "" {
		return t.member.SandboxID
	}
	return t.c.ID
}

func (t target) isSandbox() bool { return t.sandbox.Metadata != nil }

// running is false for the zero target, a container that could not be inspected.
func (t target) running() bool {
	return t.c.ContainerJSONBase != nil && t.c.State != nil && t.c.State.Running && t.c.State.Pid > 0
}

func (t target) attributes() *runtimeapi.ContainerAttributes {
	return &runtimeapi.ContainerAttributes{
		Id: t.c.ID, Metadata: t.member.Metadata, Labels: t.member.Labels, Annotations: t.member.Annotations,
	}
}

func (t target) podAttributes() *runtimeapi.PodSandboxAttributes {
	return &runtimeapi.PodSandboxAttributes{
		Id: t.c.ID, Metadata: t.sandbox.Metadata, Labels: t.sandbox.Labels, Annotations: t.sandbox.Annotations,
	}
}

// inspect finds one target.
func (s *Service) inspect(ctx context.Context, id string) (target, error) {
	if id == "" {
		return target{}, fmt.Errorf("the id is empty: %w", errdefs.ErrInvalidArgument)
	}
	c, err := s.engine.ContainerInspect(ctx, id)
	if err != nil {
		return target{}, fmt.Errorf("container %s: %w", id, err)
	}
	if c.ContainerJSONBase == nil || c.Config == nil || c.State == nil || c.HostConfig == nil {
		return target{}, fmt.Errorf("container %s: the engine's answer has no state: %w", id, errdefs.ErrInternal)
	}
	t := target{c: c}
	var isMember, isSandbox bool
	t.member, isMember = state.DecodeContainer(c.Name, c.Config.Labels)
	t.sandbox, isSandbox = state.DecodeSandbox(c.Name, c.Config.Labels)
	if !isMember && !isSandbox {
		return target{}, fmt.Errorf("container %s belongs to no pod: %w", id, errdefs.ErrNotFound)
	}
	return t, nil
}

// targets lists what runs, is wanted (nil: all is) and carries the labels. Those
// that end meanwhile are left out.
func (s *Service) targets(ctx context.Context, wanted func(container.Summary) bool, labels ...string) ([]target, error) {
	args := filters.NewArgs()
	for _, l := range labels {
		args.Add("label", l)
	}
	summaries, err := s.engine.ContainerList(ctx, container.ListOptions{Filters: args})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	if wanted != nil {
		summaries = slices.DeleteFunc(slices.Clone(summaries), func(c container.Summary) bool { return !wanted(c) })
	}
	found := make([]target, len(summaries))
	err = each(ctx, len(summaries), func(ctx context.Context, i int) error {
		t, err := s.inspect(ctx, summaries[i].ID)
		found[i] = t
		return s.forgive(summaries[i].ID, err)
	})
	if err != nil {
		return nil, err
	}
	var out []target
	for _, t := range found {
		if t.running() {
			out = append(out, t)
		}
	}
	return out, nil
}

// forgive leaves a container out that is gone, or that the engine is in trouble
// with: one container must not keep the others from being measured.
func (s *Service) forgive(id string, err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	if errdefs.IsInternal(err) {
		s.log.Warn("a container cannot be measured", "id", id, "err", err)
		return nil
	}
	return err
}

// each works on the numbers below n, some at the same time.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range n {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

// reading is measure or measureUsage.
type reading func(host.CgroupDirs, time.Time) sample

// read measures a running target, from files or else by the engine. ok is false
// where it has ended meanwhile.
func (s *Service) read(ctx context.Context, t target, from reading) (m sample, ok bool, err error) {
	dirs, err := host.Cgroups(t.c.State.Pid, t.c.ID)
	if err == nil {
		m = from(dirs, s.now())
		if m.cpu.usage > 0 || m.memory.usage > 0 {
			return m, true, nil
		}
	}
	m, err = s.readEngine(ctx, t.c.ID)
	if errdefs.IsNotFound(err) || errors.Is(err, errNotRunning) {
		return m, false, nil
	}
	return m, err == nil, err
}

// layer is the size of what the container has written, where that can be told
// before until.
func (s *Service) layer(t target, until time.Time) (layerSize, bool) {
	find := s.layerFinder(t)
	if find == nil {
		return layerSize{}, false
	}
	return s.sizes.of(t.c.ID, find, until)
}

// beginLayers starts the walks for many containers, which then share one budget
// of waiting; it gives the end of that.
func (s *Service) beginLayers(ts ...target) time.Time {
	for _, t := range ts {
		if find := s.layerFinder(t); find != nil && !t.isSandbox() {
			s.sizes.begin(t.c.ID, find)
		}
	}
	return time.Now().Add(sizeBudget)
}

// layerFinder is nil for a container whose layer is on another host. An engine that does
// not say where the layer is, as with containerd's image store, is asked for the size.
func (s *Service) layerFinder(t target) findSize {
	switch dir := layerDir(t); {
	case dir != "":
		return func(ctx context.Context) (layerSize, error) {
			size, err := walk(ctx, dir)
			size.root, _, _ = strings.Cut(dir, "/overlay2/")
			return size, err
		}
	case t.c.GraphDriver.Name != "" && t.c.GraphDriver.Data["UpperDir"] == "":
		return func(ctx context.Context) (layerSize, error) { return s.askSize(ctx, t.c.ID) }
	}
	return nil
}

func (s *Service) askSize(ctx context.Context, id string) (layerSize, error) {
	c, _, err := s.engine.ContainerInspectWithRaw(ctx, id, true)
	if err != nil {
		return layerSize{}, fmt.Errorf("size of container %s: %w", id, err)
	}
	if c.ContainerJSONBase == nil || c.SizeRw == nil {
		return layerSize{}, fmt.Errorf("size of container %s: the engine does not say it: %w", id, errdefs.ErrNotFound)
	}
	info, err := s.engine.Info(ctx)
	if err != nil {
		return layerSize{}, fmt.Errorf("ask the docker engine for its root directory: %w", err)
	}
	return layerSize{bytes: positive(*c.SizeRw), at: time.Now(), root: info.DockerRootDir}, nil
}

// layerDir is the directory of the container's writable layer, "" where it is
// not on this host.
func layerDir(t target) string {
	dir := t.c.GraphDriver.Data["UpperDir"]
	if t.c.GraphDriver.Name != "overlay2" || dir == "" {
		return ""
	}
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// collect measures many targets. Those that ended are left out, and those that
// the engine does not come to an end with.
func (s *Service) collect(ctx context.Context, ts []target, from reading) (map[string]sample, error) {
	var mu sync.Mutex
	out := map[string]sample{}
	err := each(ctx, len(ts), func(ctx context.Context, i int) error {
		one, cancel := context.WithTimeout(ctx, s.patience)
		defer cancel()
		m, ok, err := s.read(one, ts[i], from)
		if err != nil && one.Err() != nil && ctx.Err() == nil {
			s.log.Warn("a container cannot be measured in time", "id", ts[i].c.ID, "err", err)
			return nil
		}
		if err != nil || !ok {
			return s.forgive(ts[i].c.ID, err)
		}
		mu.Lock()
		defer mu.Unlock()
		out[ts[i].c.ID] = m
		return nil
	})
	return out, err
}
