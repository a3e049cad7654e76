package private

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/system"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/shim/state"
)

type remembers struct {
	Engine
	journal []events.Message
	end     error
	listed  []container.Summary
	asked   events.ListOptions
}

func (*remembers) Info(context.Context) (system.Info, error) {
	return system.Info{SystemTime: "2026-01-02T03:04:05.5Z"}, nil
}

func (r *remembers) Events(_ context.Context, o events.ListOptions) (<-chan events.Message, <-chan error) {
	r.asked = o
	messages, errs := make(chan events.Message), make(chan error, 1)
	go func() {
		for _, m := range r.journal {
			messages <- m
		}
		errs <- r.end
	}()
	return messages, errs
}

func (r *remembers) ContainerList(context.Context, container.ListOptions) ([]container.Summary, error) {
	return r.listed, nil
}

type sentEvents struct {
	grpc.ServerStream
	events []*api.EngineEvent
}

func (*sentEvents) Context() context.Context { return context.Background() }

func (s *sentEvents) Send(e *api.EngineEvent) error {
	s.events = append(s.events, e)
	return nil
}

// TestEngineEvents checks that only events about pods are returned, without execs and without attributes that an
// image's labels could override.
func TestEngineEvents(t *testing.T) {
	t.Parallel()
	labels := func(more ...string) map[string]string {
		m := map[string]string{
			state.LabelType: state.TypeContainer, state.LabelSandboxID: "s", "name": "k8s_main_web_shop_u_2",
			"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "u", "io.kubernetes.container.name": "main",
		}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	message := func(at int64, id string, action events.Action, attributes map[string]string) events.Message {
		return events.Message{TimeNano: at, Action: action, Actor: events.Actor{ID: id, Attributes: attributes}}
	}
	engine := &remembers{end: io.EOF, listed: []container.Summary{{ID: "forged", Labels: map[string]string{"signal": "1"}}}, journal: []events.Message{
		message(1, "c", events.ActionStart, labels()),
		message(2, "c", "exec_create: sh", labels()),
		message(3, "c", events.ActionKill, labels("signal", "9")),
		message(4, "c", events.ActionDie, labels("exitCode", "137")),
		message(5, "none", events.ActionDie, map[string]string{"exitCode": "1"}),
		message(6, "forged", events.ActionStart, labels("exitCode", "0")),
		message(7, "forged", events.ActionKill, labels("exitCode", "0", "signal", "1")),
		message(8, "forged", events.ActionDie, labels("exitCode", "0", "signal", "1")),
	}}
	event := func(at int64, id, action string) *api.EngineEvent {
		return &api.EngineEvent{UnixNano: at, Action: action, Id: id, SandboxId: "s", Namespace: "shop", Pod: "web", PodUid: "u", Container: "main", Attempt: 2}
	}
	want := []*api.EngineEvent{event(1, "c", "start"), event(3, "c", "kill"), event(4, "c", "die"), event(6, "forged", "start"), event(7, "forged", "kill"), event(8, "forged", "die")}
	want[1].Signal, want[2].ExitCode, want[5].ExitCode = "9", 137, -1
	var out sentEvents
	err := (&Service{Engine: engine}).EngineEvents(&api.EngineEventsRequest{SinceUnixNano: 1_500_000_000}, &out)
	if diff := cmp.Diff(want, out.events, protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	asked := events.ListOptions{Since: "1.500000000", Until: "2026-01-02T03:04:05.5Z"}
	if engine.asked.Filters = (filters.Args{}); engine.asked.Since != asked.Since || engine.asked.Until != asked.Until {
		t.Errorf("asked %+v", engine.asked)
	}
	engine.end = errors.New("broken")
	if err := (&Service{Engine: engine}).EngineEvents(&api.EngineEventsRequest{UntilUnixNano: 7}, &out); !errors.Is(err, engine.end) || engine.asked.Until != "0.000000007" {
		t.Errorf("got %v after %q", err, engine.asked.Until)
	}
}
