package reliability

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestEventsAreBrokenOnEngine breaks the engine's event stream. serve's lists stay correct, and changes in the meantime
// are reported when the stream is back.
func TestEventsAreBrokenOnEngine(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]fault{
		"garbage":      {Body: garble},
		"broken off":   {Body: truncate(100)},
		"refused":      {Answer: answer(http.StatusInternalServerError, `{"message":"it is on fire"}`)},
		"cut":          {Answer: cut},
		"never begins": {Answer: hang},
	} {
		if broken.Answer != nil && os.Getenv("CRISHIM_TEST_LONG") == "" {
			continue // two faults that serve notices are enough
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			k := newKiller(t, h)
			p := k.running(t)
			told := k.events(t, p)
			var asked atomic.Int64
			k.proxy.Events(func() fault {
				asked.Add(1)
				return broken
			})
			wait(t, func() error {
				if asked.Load() == 0 {
					return errors.New("serve has not asked for events again")
				}
				return nil
			})
			if err := h.engine.ContainerKill(t.Context(), p.containerID, "KILL"); err != nil {
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
			told(p.containerID, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
			k.gone(t, p)
			k.serve.stop()
		})
	}
}

// events subscribes to serve's events until the test ends. It creates containers in a pod until the first event
// arrives, because earlier changes are not reported. The returned function waits for an event.
func (k *killer) events(t *testing.T, p *pod) (told func(id string, kind runtimeapi.ContainerEventType)) {
	t.Helper()
	stream, err := k.serve.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards the variables below
	var heard []string
	var ended error
	go func() {
		for {
			event, err := stream.Recv()
			mu.Lock()
			if ended = err; err == nil {
				heard = append(heard, event.GetContainerId()+" "+event.GetContainerEventType().String())
			}
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	attempt := uint32(0)
	wait(t, func() error {
		c := p.container()
		attempt++
		c.Metadata.Name, c.Metadata.Attempt = "more", attempt
		r, err := k.serve.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, Config: c, SandboxConfig: p.config})
		if err != nil {
			return err
		}
		if _, err := k.serve.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: r.GetContainerId()}); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if len(heard) == 0 {
			return errors.New("no event has come")
		}
		return nil
	})
	return func(id string, kind runtimeapi.ContainerEventType) {
		t.Helper()
		wait(t, func() error {
			mu.Lock()
			defer mu.Unlock()
			if ended != nil {
				t.Fatalf("the stream of events has ended: %v", ended)
			}
			if !slices.Contains(heard, id+" "+kind.String()) {
				return fmt.Errorf("%v of %s is not reported; of it: %v", kind, id, slices.DeleteFunc(slices.Clone(heard), func(e string) bool { return !strings.HasPrefix(e, id) }))
			}
			return nil
		})
	}
}
