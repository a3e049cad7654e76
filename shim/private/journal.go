package private

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/shim/state"
)

// EngineEvents sends the events of pods from the engine's log, which holds the last few hundred events of all kinds. It
// omits events of execs, because probes cause many of them.
func (s *Service) EngineEvents(r *api.EngineEventsRequest, out api.Crishim_EngineEventsServer) error {
	ctx := out.Context()
	info, err := s.Engine.Info(ctx)
	if err != nil {
		return err
	}
	until := info.SystemTime // the engine's clock; for a later time the engine would wait for new events
	if at := r.GetUntilUnixNano(); at != 0 {
		if now, err := time.Parse(time.RFC3339Nano, until); err == nil && time.Unix(0, at).Before(now) {
			until = engineTime(at)
		}
	}
	journal, err := s.journal(out, events.ListOptions{Since: engineTime(r.GetSinceUnixNano()), Until: until, Filters: filters.NewArgs(
		filters.Arg("type", string(events.ContainerEventType)), filters.Arg("label", state.LabelType),
	)})
	if err != nil {
		return err
	}
	list, err := s.Engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", state.LabelType))})
	if err != nil {
		return err
	}
	labels := map[string]map[string]string{}
	for _, c := range list {
		labels[c.ID] = c.Labels
	}
	for _, m := range journal {
		if m.Action != events.ActionDie && m.Action != events.ActionKill {
			if labels[m.Actor.ID] == nil {
				labels[m.Actor.ID] = map[string]string{}
			}
			maps.Copy(labels[m.Actor.ID], m.Actor.Attributes)
		}
	}
	for _, m := range journal {
		if e := engineEvent(m, labels[m.Actor.ID]); e != nil {
			if err := out.Send(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Service) journal(out api.Crishim_EngineEventsServer, o events.ListOptions) (journal []events.Message, err error) {
	messages, errs := s.Engine.Events(out.Context(), o)
	for {
		select {
		case m := <-messages:
			if m.Actor.ID != "" && !strings.HasPrefix(string(m.Action), "exec_") {
				journal = append(journal, m)
			}
		case err := <-errs:
			if errors.Is(err, io.EOF) {
				return journal, nil
			}
			return nil, fmt.Errorf("read the engine's events: %w", err)
		}
	}
}

func engineTime(nano int64) string {
	return fmt.Sprintf("%d.%09d", nano/int64(time.Second), nano%int64(time.Second))
}

// engineEvent returns nil for an event outside pods. In an event's attributes the engine overwrites its own values with
// the container's labels, which may come from an image. Attributes with the name of a label are therefore ignored.
func engineEvent(m events.Message, labels map[string]string) *api.EngineEvent {
	at := cmp.Or(m.TimeNano, m.Time*int64(time.Second))
	action, _, _ := strings.Cut(string(m.Action), ":")
	e := &api.EngineEvent{UnixNano: at, Action: action, Id: m.Actor.ID}
	name := m.Actor.Attributes["name"]
	if sandbox, ok := state.DecodeSandbox(name, m.Actor.Attributes); ok {
		e.SandboxId = e.GetId()
		e.Namespace, e.Pod, e.PodUid, e.Attempt = sandbox.Metadata.GetNamespace(), sandbox.Metadata.GetName(), sandbox.Metadata.GetUid(), sandbox.Metadata.GetAttempt()
	} else if c, ok := state.DecodeContainer(name, m.Actor.Attributes); ok {
		e.SandboxId, e.Container, e.Attempt = c.SandboxID, c.Metadata.GetName(), c.Metadata.GetAttempt()
		e.Namespace, e.Pod, e.PodUid = c.Pod.GetNamespace(), c.Pod.GetName(), c.Pod.GetUid()
	} else {
		return nil
	}
	said := func(key string) string {
		if _, forged := labels[key]; forged {
			return ""
		}
		return m.Actor.Attributes[key]
	}
	if m.Action == events.ActionDie {
		e.ExitCode = -1
		if code, err := strconv.ParseInt(said("exitCode"), 10, 32); err == nil {
			e.ExitCode = int32(code)
		}
	}
	if m.Action == events.ActionKill {
		e.Signal = said("signal")
	}
	return e
}
