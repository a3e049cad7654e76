// Package events is the area of the shim that answers GetContainerEvents: it
// turns the engine's event stream into the CRI's, with the state of the pod and
// its containers in each event.
//
// The engine forgets events that nobody listened to. After every gap in its
// stream the area lists the containers and tells what changed in between, so
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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

// Engine is what the area needs of the Docker client.
type Engine interface {
	Info(ctx context.Context) (system.Info, error)
	Events(ctx context.Context, options events.ListOptions) (<-chan events.Message, <-chan error)
	ContainerList(ctx context.Context, options container.ListOptions) ([]container.Summary, error)
}

// Statuses describe what an event is about. The sandbox and container areas
// implement it.
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

// New builds the area.
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

// follow tells what the engine's stream says until it breaks. It listens before
// it lists, so nothing falls between the two; the first time it lists before
// that as well, to know what is no news. It says whether it came so far.
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
