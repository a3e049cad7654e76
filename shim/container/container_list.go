package container

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/state"
)

// fullID is the length of an engine id.
const fullID = 64

// ListContainers lists containers, the newest first.
func (s *Service) ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f := r.GetFilter()
	summaries, err := s.engine.ContainerList(ctx, listOptions(f, s.writesLogs))
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	decode, remember := s.decoded.lookup(s.remember && proto.Size(f) == 0)
	found := make([]*runtimeapi.Container, 0, len(summaries))
	for _, summary := range summaries {
		decoded, ok := decode(summary)
		if !ok {
			continue
		}
		if c := fromSummary(summary, decoded); matches(c, f) {
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && s.logs.Unfinished(ctx, c.GetId()) {
				c.State = runtimeapi.ContainerState_CONTAINER_RUNNING
			}
			found = append(found, c)
		}
	}
	remember()
	gone, err := s.resolveCreated(ctx, found)
	if err != nil {
		return nil, err
	}
	resp := &runtimeapi.ListContainersResponse{}
	for i, c := range found {
		if !gone[i] && (f.GetState() == nil || f.GetState().GetState() == c.GetState()) {
			resp.Containers = append(resp.Containers, c)
		}
	}
	slices.SortStableFunc(resp.Containers, func(a, b *runtimeapi.Container) int { return cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()) })
	return resp, nil
}

// listOptions leaves to the engine what it can filter. A container whose log is not
// complete yet is running for the CRI and has ended for the engine.
func listOptions(f *runtimeapi.ContainerFilter, writesLogs bool) container.ListOptions {
	args := filters.NewArgs(filters.Arg("label", state.LabelType+"="+state.TypeContainer))
	if f.GetId() != "" {
		args.Add("id", f.GetId())
	}
	if id := f.GetPodSandboxId(); len(id) == fullID {
		args.Add("label", state.LabelSandboxID+"="+id)
	}
	for k, v := range f.GetLabelSelector() {
		args.Add("label", state.EncodeLabelKey(k)+"="+v)
	}
	// The running ones are what the engine lists when nobody asks for all: it then
	// passes over the others before it looks at anything else.
	running := f.GetState() != nil && f.GetState().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	if running && !writesLogs {
		return container.ListOptions{Filters: args}
	}
	if running {
		args.Add("status", container.StateExited)
	}
	if f.GetState() != nil {
		for _, word := range convert.EngineStates(f.GetState().GetState()) {
			args.Add("status", word)
		}
	}
	return container.ListOptions{All: true, Filters: args}
}

// matches checks what the engine cannot filter or filters in its own way.
func matches(c *runtimeapi.Container, f *runtimeapi.ContainerFilter) bool {
	return strings.HasPrefix(c.GetId(), f.GetId()) &&
		strings.HasPrefix(c.GetPodSandboxId(), f.GetPodSandboxId()) &&
		state.MatchLabels(c.GetLabels(), f.GetLabelSelector())
}

func fromSummary(c container.Summary, decoded state.Container) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id:           c.ID,
		PodSandboxId: decoded.SandboxID,
		Metadata:     decoded.Metadata,
		Image:        &runtimeapi.ImageSpec{Image: cmp.Or(decoded.Image, c.Image), UserSpecifiedImage: decoded.Image}, // other shims note none
		ImageRef:     c.ImageID,
		ImageId:      c.ImageID,
		State:        convert.ContainerState(c.State),
		CreatedAt:    createdAt(decoded.Created, c.Created*int64(time.Second)),
		Labels:       decoded.Labels,
		Annotations:  decoded.Annotations,
	}
}

// createdAt takes the shim's own time, which the engine's lists have only in
// seconds, unless the two clocks are different ones.
func createdAt(own time.Time, engine int64) int64 {
	const sameClock = 5 * time.Second
	if off := time.Duration(own.UnixNano() - engine); own.IsZero() || off.Abs() > sameClock {
		return engine
	}
	return own.UnixNano()
}

// resolveCreated asks the engine about the created ones, several at a time, because one
// whose start failed looks the same in a list. It returns which are gone.
func (s *Service) resolveCreated(ctx context.Context, list []*runtimeapi.Container) (gone []bool, err error) {
	const atOnce = 8
	gone = make([]bool, len(list))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, c := range list {
		if c.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED {
			continue
		}
		g.Go(func() (err error) {
			gone[i], err = s.resolve(gctx, c)
			return err
		})
	}
	return gone, g.Wait()
}

func (s *Service) resolve(ctx context.Context, c *runtimeapi.Container) (gone bool, err error) {
	details, err := s.engine.ContainerInspect(ctx, c.GetId())
	switch {
	case errdefs.IsNotFound(err):
		return true, nil
	case errdefs.IsInternal(err):
		// The engine is in trouble with this one; the others are listed.
		s.log.Warn("a container's state cannot be told", "id", c.GetId(), "err", err)
		c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		return false, nil
	case err != nil:
		return false, fmt.Errorf("list containers: %w", err)
	}
	run, err := convert.Run(details.Created, details.State)
	if err != nil {
		return false, fmt.Errorf("list containers: container %s: %w", c.GetId(), err)
	}
	c.State = run.State
	return false, nil
}

// decodedLabels are what the labels of the last list's containers say. Labels never
// change, and a kubelet asks for the list each second. What is in it is shared, and
// must not be changed.
type decodedLabels struct {
	mu   sync.Mutex
	byID map[string]decodedName // replaced, not changed
}

// decodedName goes with the name that the container had: it can be renamed.
type decodedName struct {
	name string
	state.Container
}

// lookup returns what decodes the containers of a list. What those of a whole list
// say is remembered; nothing is of the others.
func (d *decodedLabels) lookup(whole bool) (decode func(container.Summary) (state.Container, bool), done func()) {
	d.mu.Lock()
	known := d.byID
	d.mu.Unlock()
	next := known
	if whole {
		next = make(map[string]decodedName, len(known))
	}
	decode = func(c container.Summary) (state.Container, bool) {
		name := state.ListedName(c)
		if had, ok := known[c.ID]; ok && had.name == name {
			if whole {
				next[c.ID] = had
			}
			return had.Container, true
		}
		fresh, ok := state.DecodeContainer(name, c.Labels)
		if ok && whole {
			next[c.ID] = decodedName{name, fresh}
		}
		return fresh, ok
	}
	done = func() {
		if whole {
			d.mu.Lock()
			d.byID = next
			d.mu.Unlock()
		}
	}
	return decode, done
}
