package shim_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim"
)

// TestAnEndedContainerHasItsWholeLogOnEngine checks that a client that sees the end of a container in a status, list,
// event or stop response can read its last line. No output of short consecutive jobs is lost (200 with
// CRISHIM_TEST_LONG=1).
func TestAnEndedContainerHasItsWholeLogOnEngine(t *testing.T) {
	t.Parallel()
	d := newDaemonWith(t, "", shim.Options{WriteLogs: true, Network: shim.NetworkOptions{Plugin: shim.PluginBridge}})
	p := d.pod(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, err := d.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 1000)
	go func() {
		defer close(ended)
		for {
			e, err := events.Recv()
			if err != nil {
				return
			}
			if e.GetPodSandboxStatus().GetId() != p.id {
				continue // of another test on the same engine
			}
			for _, c := range e.GetContainersStatuses() {
				if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
					ended <- c.GetId()
				}
			}
		}
	}()
	tell := map[string]func(id string) bool{
		"status": func(id string) bool {
			r, err := d.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
			return err == nil && r.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
		},
		"list": func(id string) bool {
			r, err := d.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
				Id: id, State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED},
			}})
			return err == nil && len(r.GetContainers()) == 1
		},
		"event": func(id string) bool {
			select {
			case e := <-ended:
				return e == id
			case <-time.After(testTimeout):
				return false
			}
		},
		"stop": func(id string) bool {
			_, err := d.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 30})
			return err == nil
		},
	}
	rounds := 5
	if os.Getenv("CRISHIM_TEST_LONG") == "1" {
		rounds = 50
	}
	for i := range rounds {
		for by, is := range tell {
			name, script := fmt.Sprintf("%s-%d", by, i), "seq 1 500; echo last"
			if by == "stop" {
				script = "trap 'seq 1 500; echo last; exit' TERM; echo ready; while :; do sleep 1 & wait; done"
			}
			id := p.create(t, shell(name, script))
			if _, err := d.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(p.config.GetLogDirectory(), name+".log")
			if by == "stop" {
				test.Until(t, "the trap", func() bool { text, _ := os.ReadFile(path); return strings.Contains(string(text), "ready") })
			}
			for end := time.Now().Add(testTimeout); !is(id); {
				if time.Now().After(end) {
					t.Fatalf("%s: the end is never told", by)
				}
			}
			if text, err := os.ReadFile(path); err != nil || !strings.HasSuffix(string(text), " stdout F last\n") {
				t.Errorf("%s: got %d bytes, %v, without the last line, when the end is told", by, len(text), err)
			}
		}
	}
}
