package stubcri

import (
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// event tells everyone who watches; a watcher that does not read loses it.
func (s *Server) event(c *container, kind runtimeapi.ContainerEventType) {
	e := &runtimeapi.ContainerEventResponse{
		ContainerId: c.id, ContainerEventType: kind, CreatedAt: s.now().UnixNano(), PodSandboxStatus: c.pod.status(),
	}
	for _, other := range s.sortedContainers() {
		if other.pod == c.pod {
			e.ContainersStatuses = append(e.ContainersStatuses, other.status())
		}
	}
	for ch := range s.watchers {
		select {
		case ch <- e:
		default:
		}
	}
}

func (r *runtimeService) GetContainerEvents(_ *runtimeapi.GetEventsRequest, out grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	ch := make(chan *runtimeapi.ContainerEventResponse, 100)
	r.s.mu.Lock()
	r.s.watchers[ch] = struct{}{}
	r.s.mu.Unlock()
	defer func() {
		r.s.mu.Lock()
		delete(r.s.watchers, ch)
		r.s.mu.Unlock()
	}()
	for {
		select {
		case e := <-ch:
			if err := out.Send(e); err != nil {
				return err
			}
		case <-out.Context().Done():
			return nil
		case <-r.s.stop:
			return nil
		}
	}
}

// Watchers is how many clients watch events, for tests that must not act
// before somebody looks.
func (s *Server) Watchers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers)
}
