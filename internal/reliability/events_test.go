package reliability

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/faultproxy"
	"github.com/crishim/crishim/shim/enginetest"
)

// TestEventsAreBrokenOnEngine breaks the stream of the engine's events. What serve
// lists stays true without it, and what happened meanwhile is told once it is back.
func TestEventsAreBrokenOnEngine(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faultproxy.Fault{
		"garbage":      {Body: faultproxy.Garble},
		"broken off":   {Body: faultproxy.Truncate(100)},
		"refused":      {Answer: faultproxy.Answer(http.StatusInternalServerError, `{"message":"it is on fire"}`)},
		"cut":          {Answer: faultproxy.Cut},
		"never begins": {Answer: faultproxy.Hang},
	} {
		if fault.Answer != nil && os.Getenv("CRISHIM_TEST_LONG") == "" {
			continue // the two that serve hears something of are enough
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			k := newKiller(t, h)
			p := k.running(t)
			told := make(chan *runtimeapi.ContainerEventResponse, 100)
			stream, err := k.serve.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer close(told)
				for {
					event, err := stream.Recv()
					if err != nil {
						return
					}
					told <- event
				}
			}()
			var asked atomic.Int64
			k.proxy.Events(func() faultproxy.Fault {
				asked.Add(1)
				return fault
			})
			wait(t, func() error {
				if asked.Load() == 0 {
					return errors.New("serve has not asked for events again")
				}
				return nil
			})
			if err := enginetest.Library(t, h.engine).ContainerKill(t.Context(), p.containerID, "KILL"); err != nil {
				t.Fatal(err)
			}
			k.truthful(t, p)
			wait(t, func() error {
				listed, err := p.listed(t.Context(), k.serve)
				running, there := listed[p.containerID]
				if err == nil && (running || !there || !listed[p.id]) {
					err = fmt.Errorf("got %v, want the sandbox ready and the container ended", listed)
				}
				return err
			})

			k.proxy.Events(nil)
			wait(t, func() error {
				for {
					select {
					case event, ok := <-told:
						if !ok {
							t.Fatal("the stream of events has ended")
						}
						if event.GetContainerId() == p.containerID && event.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
							return nil
						}
					default:
						return fmt.Errorf("the end of %s is not told", p.containerID)
					}
				}
			})
			k.gone(t, p)
			k.serve.stop()
		})
	}
}
