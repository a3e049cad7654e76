// Package events implements GetContainerEvents. It converts the engine's event stream to CRI events, each with the
// state of the pod and its containers.
//
// The engine does not keep events for a disconnected client. After each gap in the stream the service lists the
// containers and sends the differences, so a client sees the latest state of each container, but not every step.
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

type Engine interface {
	Info(ctx context.Context) (system.Info, error)
	Events(ctx context.Context, options events.ListOptions) (<-chan events.Message, <-chan error)
	ContainerList(ctx context.Context, options container.ListOptions) ([]container.Summary, error)
}

type Statuses interface {
	PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error)
	ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error)
	AwaitLog(ctx context.Context, id string)
}

type Service struct {
	engine   Engine
	statuses Statuses
	log      *slog.Logger
	retry    time.Duration // pause after the engine's stream broke

	open  context.Context // ends with Close
	close context.CancelFunc
}

func New(engine Engine, statuses Statuses, log *slog.Logger) *Service {
	s := &Service{engine: engine, statuses: statuses, log: log, retry: time.Second}
	s.open, s.close = context.WithCancel(context.Background())
	return s
}

func (s *Service) Close() { s.close() }

func (s *Service) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer context.AfterFunc(s.open, cancel)()
	t, d := newTracker(), &delayed{changes: map[string][]change{}, ready: make(chan string)}
	defer d.waits.Wait()
	defer cancel()
	for first := true; ; {
		listed, err := s.follow(ctx, t, d, first, stream.Send)
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

// follow sends changes until the engine's stream breaks. It subscribes before it lists, so that nothing is lost in
// between. The first time it also lists before subscribing, to know the initial state.
func (s *Service) follow(stream context.Context, t *tracker, d *delayed, first bool, send func(*runtimeapi.ContainerEventResponse) error) (bool, error) {
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
			if d.add(stream, s, c) {
				continue
			}
			if err := send(s.describe(ctx, t, c)); err != nil {
				return true, err
			}
		}
		select {
		case m := <-messages:
			changes = t.message(m)
		case pod := <-d.ready:
			changes = d.take(pod)
		case err := <-errs:
			return true, err
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
}

// delayed holds the changes of pods whose first change must wait: a sandbox for its address, an ended container for its
// log. Other pods are not delayed.
type delayed struct {
	changes map[string][]change // in order, by sandbox id
	ready   chan string         // sandboxes whose first change can be sent
	waits   sync.WaitGroup
}

func (d *delayed) add(ctx context.Context, s *Service, c change) bool {
	pod := c.c.sandboxID
	if before, waits := d.changes[pod]; waits {
		d.changes[pod] = append(before, c)
		return true
	}
	wait := s.statuses.AwaitLog
	switch {
	case c.ready:
		return false
	case c.c.isSandbox && (c.kind == created || c.kind == started):
		wait = s.awaitAddress
	case c.c.isSandbox || c.kind != stopped:
		return false
	}
	d.changes[pod] = []change{c}
	d.waits.Go(func() {
		wait(ctx, c.id)
		select {
		case d.ready <- pod:
		case <-ctx.Done():
		}
	})
	return true
}

// take removes all changes of a pod from the queue and returns them. The first change has waited. Other changes of the
// sandbox need not wait: its started event directly follows the created event, because both wait for the same address.
// add may delay the changes of containers again.
func (d *delayed) take(pod string) []change {
	changes := d.changes[pod]
	delete(d.changes, pod)
	for i, c := range changes {
		changes[i].ready = i == 0 || c.c.isSandbox
	}
	return changes
}

// awaitAddress waits up to 5 seconds until a running sandbox has an address: kubelets take the address from the start
// events. It does not wait for a sandbox on the node's network.
func (s *Service) awaitAddress(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		status := s.status(ctx, id)
		if status.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || status == nil || status.GetNetwork().GetIp() != "" ||
			status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (s *Service) relist(ctx context.Context, t *tracker) ([]change, error) {
	list, err := s.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", state.LabelType))})
	if err != nil {
		return nil, err
	}
	return t.relist(list, time.Now().UnixNano()), nil
}

func (s *Service) describe(ctx context.Context, t *tracker, c change) *runtimeapi.ContainerEventResponse {
	pod := c.c.sandboxID
	if c.kind == stopped && !c.c.isSandbox {
		// A kubelet ignores an event that is older than its state, and the container was reported as running until now.
		c.at = max(c.at, time.Now().UnixNano())
	}
	status := s.status(ctx, pod)
	if last := t.pods[pod]; status != nil {
		t.pods[pod] = status
	} else if last != nil {
		status = proto.CloneOf(last)
		status.State, status.Network = runtimeapi.PodSandboxState_SANDBOX_NOTREADY, &runtimeapi.PodSandboxNetworkStatus{}
	} else if c.c.isSandbox {
		status = &runtimeapi.PodSandboxStatus{
			Id: c.id, Metadata: c.c.sandbox.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
			Labels: c.c.sandbox.Labels, Annotations: c.c.sandbox.Annotations, RuntimeHandler: c.c.sandbox.RuntimeHandler,
		}
	}
	if c.kind == deleted && c.c.isSandbox {
		delete(t.pods, pod)
	}
	return &runtimeapi.ContainerEventResponse{
		ContainerId:        c.id,
		ContainerEventType: c.kind,
		CreatedAt:          c.at,
		PodSandboxStatus:   status,
		ContainersStatuses: s.containers(ctx, pod),
	}
}

func (s *Service) status(ctx context.Context, id string) *runtimeapi.PodSandboxStatus {
	resp, err := s.statuses.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		s.log.Debug("the pod sandbox of an event has no status", "id", id, "err", err)
	}
	return resp.GetStatus()
}

func (s *Service) containers(ctx context.Context, sandboxID string) []*runtimeapi.ContainerStatus {
	list, err := s.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", state.LabelType+"="+state.TypeContainer),
		filters.Arg("label", state.LabelSandboxID+"="+sandboxID),
	)})
	if err != nil {
		s.log.Debug("the containers of an event's pod cannot be listed", "id", sandboxID, "err", err)
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
