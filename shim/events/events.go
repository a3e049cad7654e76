// Package events is the service of the shim that answers GetContainerEvents: it
// turns the engine's event stream into the CRI's, with the state of the pod and
// its containers in each event.
//
// The engine forgets events that nobody listened to. After every gap in its
// stream it lists the containers and reports what changed in between, so
// that a listener sees every container come to the state that it is in, though
// not every step on the way.
package events

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/system"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

// Engine is what the service needs of the Docker client.
type Engine interface {
	Info(ctx context.Context) (system.Info, error)
	Events(ctx context.Context, options events.ListOptions) (<-chan events.Message, <-chan error)
	ContainerList(ctx context.Context, options container.ListOptions) ([]container.Summary, error)
}

// Statuses describe what an event is about. The sandbox and container
// services implement it.
type Statuses interface {
	PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error)
	ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error)
	// AwaitLog waits until a container that has ended is reported so.
	AwaitLog(ctx context.Context, id string)
}

// Service answers GetContainerEvents.
type Service struct {
	engine   Engine
	statuses Statuses
	log      *slog.Logger
	retry    time.Duration // after the engine's stream broke

	open  context.Context // ends with Close
	close context.CancelFunc
}

// New builds the service.
func New(engine Engine, statuses Statuses, log *slog.Logger) *Service {
	s := &Service{engine: engine, statuses: statuses, log: log, retry: time.Second}
	s.open, s.close = context.WithCancel(context.Background())
	return s
}

// Close ends all streams.
func (s *Service) Close() { s.close() }

// GetContainerEvents streams events from now on until the client goes. An engine
// that is away interrupts it, but does not end it.
func (s *Service) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer context.AfterFunc(s.open, cancel)()
	t, w := newTracker(), &waiting{changes: map[string][]change{}, over: make(chan string)}
	defer w.logs.Wait()
	defer cancel()
	for first := true; ; {
		listed, err := s.follow(ctx, t, w, first, stream.Send)
		first = first && !listed
		if ctx.Err() != nil {
			return stream.Context().Err()
		}
		s.log.Info("the engine's event stream broke", "err", err)
		select {
		case <-time.After(s.retry):
		case <-ctx.Done():
			return stream.Context().Err()
		}
	}
}

// follow reports what is in the engine's stream until it breaks. It listens before
// it lists, so nothing falls between the two; the first time it lists before
// that as well, to know what is no news. It reports whether it came so far.
func (s *Service) follow(stream context.Context, t *tracker, w *waiting, first bool, send func(*runtimeapi.ContainerEventResponse) error) (bool, error) {
	ctx, cancel := context.WithCancel(stream)
	defer cancel()
	if first {
		if _, err := s.relist(ctx, t); err != nil {
			return false, err
		}
	}
	info, err := s.engine.Info(ctx)
	if err != nil {
		return true, err
	}
	messages, errs := s.engine.Events(ctx, events.ListOptions{Since: info.SystemTime, Filters: filters.NewArgs(
		filters.Arg("type", string(events.ContainerEventType)),
		filters.Arg("label", state.LabelType),
	)})
	changes, err := s.relist(ctx, t)
	if err != nil {
		return true, err
	}
	for {
		for _, c := range changes {
			if w.add(stream, s.statuses, c) {
				continue
			}
			if err := send(s.describe(ctx, t, c)); err != nil {
				return true, err
			}
			t.told(c)
		}
		select {
		case m := <-messages:
			changes = t.message(m)
		case pod := <-w.over:
			changes = w.take(pod)
		case err := <-errs:
			return true, err
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
}

// waiting has the changes of pods of which a container has ended whose log is not complete
// yet, in their order. They wait there, because a log that makes no progress must hold up
// neither other pods' events nor the reading of the engine's stream.
type waiting struct {
	changes map[string][]change // by sandbox
	over    chan string         // sandboxes whose first change can be told
	logs    sync.WaitGroup
}

// add reports whether a change has to wait.
func (w *waiting) add(ctx context.Context, statuses Statuses, c change) bool {
	pod := c.c.sandboxID
	if before, waits := w.changes[pod]; waits {
		w.changes[pod] = append(before, c)
		return true
	}
	if c.kind != stopped || c.c.isSandbox || c.complete {
		return false
	}
	w.changes[pod] = []change{c}
	w.logs.Go(func() {
		statuses.AwaitLog(ctx, c.id)
		select {
		case w.over <- pod:
		case <-ctx.Done():
		}
	})
	return true
}

// take returns a pod's changes, of which the first waits no more.
func (w *waiting) take(pod string) []change {
	changes := w.changes[pod]
	delete(w.changes, pod)
	changes[0].complete = true
	return changes
}

func (s *Service) relist(ctx context.Context, t *tracker) ([]change, error) {
	list, err := s.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", state.LabelType))})
	if err != nil {
		return nil, err
	}
	return t.relist(list, time.Now().UnixNano()), nil
}

// A sandbox's process runs before its network is set up. Events about its start
// wait for the address, which kubelets take from them.
const (
	addressWait = 5 * time.Second
	addressTick = 50 * time.Millisecond
)

// describe puts the state of the pod into an event.
func (s *Service) describe(ctx context.Context, t *tracker, c change) *runtimeapi.ContainerEventResponse {
	if c.kind == stopped && !c.c.isSandbox {
		// Until now the container was reported as running, at times that may be later
		// than its end, and a kubelet drops an event that is older than what it knows.
		c.at = max(c.at, time.Now().UnixNano())
	}
	status := s.pod(ctx, t, c)
	return &runtimeapi.ContainerEventResponse{
		ContainerId:        c.id,
		ContainerEventType: c.kind,
		CreatedAt:          c.at,
		PodSandboxStatus:   status,
		ContainersStatuses: s.containers(ctx, c.c.sandboxID),
	}
}

// pod is the sandbox's status, or the last that is known of it.
func (s *Service) pod(ctx context.Context, t *tracker, c change) *runtimeapi.PodSandboxStatus {
	status := s.status(ctx, c.c.sandboxID)
	if c.c.isSandbox && (c.kind == created || c.kind == started) {
		for end := time.Now().Add(addressWait); unconnected(status) && time.Now().Before(end) && ctx.Err() == nil; {
			time.Sleep(addressTick)
			status = s.status(ctx, c.c.sandboxID)
		}
	}
	if status != nil {
		t.pods[c.c.sandboxID] = status
		return status
	}
	return lastStatus(t, c)
}

func (s *Service) status(ctx context.Context, id string) *runtimeapi.PodSandboxStatus {
	resp, err := s.statuses.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		s.log.Debug("an event about a pod sandbox that cannot be described", "id", id, "err", err)
		return nil
	}
	return resp.GetStatus()
}

// unconnected reports whether a sandbox runs on a network of its own and has no
// address on it yet.
func unconnected(status *runtimeapi.PodSandboxStatus) bool {
	return status.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && status != nil && status.GetNetwork().GetIp() == "" &&
		status.GetLinux().GetNamespaces().GetOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE
}

func lastStatus(t *tracker, c change) *runtimeapi.PodSandboxStatus {
	if last, ok := t.pods[c.c.sandboxID]; ok {
		gone := proto.Clone(last).(*runtimeapi.PodSandboxStatus)
		gone.State, gone.Network = runtimeapi.PodSandboxState_SANDBOX_NOTREADY, &runtimeapi.PodSandboxNetworkStatus{}
		return gone
	}
	if !c.c.isSandbox {
		return nil
	}
	return &runtimeapi.PodSandboxStatus{
		Id: c.id, Metadata: c.c.sandbox.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		Labels: c.c.sandbox.Labels, Annotations: c.c.sandbox.Annotations, RuntimeHandler: c.c.sandbox.RuntimeHandler,
	}
}

// containers describes the pod's containers; one that goes meanwhile is left
// out.
func (s *Service) containers(ctx context.Context, sandboxID string) []*runtimeapi.ContainerStatus {
	list, err := s.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", state.LabelType+"="+state.TypeContainer),
		filters.Arg("label", state.LabelSandboxID+"="+sandboxID),
	)})
	if err != nil {
		s.log.Debug("an event about a pod whose containers cannot be listed", "id", sandboxID, "err", err)
	}
	var statuses []*runtimeapi.ContainerStatus
	for _, c := range list {
		resp, err := s.statuses.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
		if err == nil {
			statuses = append(statuses, resp.GetStatus())
		}
	}
	return statuses
}
