package events

import (
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

// The CRI's kinds of events.
const (
	created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

// change is one event that is to be told.
type change struct {
	id   string
	kind runtimeapi.ContainerEventType
	at   int64
	c    known

	complete bool // stopped: nothing of the container's log is to come
}

// known is what the tracker knows of a sandbox or container.
type known struct {
	sandboxID string // its own id for a sandbox
	sandbox   state.Sandbox
	isSandbox bool
	running   bool
	ended     bool
	announced bool // created was told
}

// tracker turns engine messages and lists into changes. A sandbox is announced
// when it runs: until then it is half-made, and may go without a trace.
type tracker struct {
	known map[string]known
	// gone are those that the last list did not have any more. Messages from
	// before it, which come after it, do not bring them back.
	gone map[string]bool
	// pods keeps the last status told of each sandbox, for events that come
	// when the engine has none any more.
	pods map[string]*runtimeapi.PodSandboxStatus
}

func newTracker() *tracker {
	return &tracker{known: map[string]known{}, pods: map[string]*runtimeapi.PodSandboxStatus{}}
}

func identify(id, name string, labels map[string]string) (known, bool) {
	if box, ok := state.DecodeSandbox(name, labels); ok {
		return known{sandboxID: id, sandbox: box, isSandbox: true}, true
	}
	c, ok := state.DecodeContainer(name, labels)
	return known{sandboxID: c.SandboxID}, ok
}

// message reads one message of the engine's stream. The attributes of its actor
// are the container's labels, and its name.
func (t *tracker) message(m events.Message) []change {
	id := m.Actor.ID
	if t.gone[id] {
		return nil
	}
	c, ok := t.known[id]
	if !ok {
		if c, ok = identify(id, m.Actor.Attributes["name"], m.Actor.Attributes); !ok {
			return nil
		}
	}
	switch m.Action {
	case events.ActionCreate:
		return t.advance(id, c, m.TimeNano)
	case events.ActionStart:
		c.running, c.ended = true, false
		return t.advance(id, c, m.TimeNano)
	case events.ActionDie:
		c.running, c.ended = false, true
		return t.advance(id, c, m.TimeNano)
	case events.ActionDestroy:
		return t.remove(id, m.TimeNano)
	}
	return nil
}

// advance notes a new state and returns the events on the way to it.
func (t *tracker) advance(id string, c known, at int64) []change {
	before := t.known[id]
	var changes []change
	tell := func(kind runtimeapi.ContainerEventType) {
		changes = append(changes, change{id: id, kind: kind, at: at, c: c})
	}
	if !before.announced && (!c.isSandbox || c.running) {
		c.announced = true
		tell(created)
	}
	if c.running && !before.running {
		tell(started)
	}
	if c.ended && !before.ended && c.announced {
		tell(stopped)
	}
	t.known[id] = c
	return changes
}

func (t *tracker) remove(id string, at int64) []change {
	c, ok := t.known[id]
	if !ok {
		return nil
	}
	delete(t.known, id)
	if !c.announced {
		return nil
	}
	changes := []change{{id: id, kind: deleted, at: at, c: c}}
	if c.running {
		c.running, c.ended = false, true
		changes = slices.Insert(changes, 0, change{id: id, kind: stopped, at: at, c: c})
	}
	return changes
}

// relist compares with what the engine has now.
func (t *tracker) relist(list []container.Summary, at int64) []change {
	var changes []change
	here := map[string]bool{}
	for _, s := range list {
		here[s.ID] = true
		c, ok := t.known[s.ID]
		if !ok {
			if c, ok = identify(s.ID, name(s), s.Labels); !ok {
				continue
			}
		}
		c.running = s.State == container.StateRunning || s.State == container.StatePaused || s.State == container.StateRestarting
		c.ended = s.State == container.StateExited || s.State == container.StateDead
		changes = append(changes, t.advance(s.ID, c, at)...)
	}
	t.gone = map[string]bool{}
	for id := range t.known {
		if !here[id] {
			t.gone[id] = true
			changes = append(changes, t.remove(id, at)...)
		}
	}
	return changes
}

// told forgets the status of a sandbox after the last event about it.
func (t *tracker) told(c change) {
	if c.kind == deleted && c.c.isSandbox {
		delete(t.pods, c.id)
	}
}

func name(c container.Summary) string {
	for _, n := range c.Names {
		if !strings.Contains(strings.TrimPrefix(n, "/"), "/") {
			return n
		}
	}
	return ""
}
