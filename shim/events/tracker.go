package events

import (
	"slices"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

const (
	created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

type change struct {
	id   string
	kind runtimeapi.ContainerEventType
	at   int64
	c    known

	ready bool // no longer delayed
}

type known struct {
	sandboxID string // for a sandbox, its own id
	sandbox   state.Sandbox
	isSandbox bool
	running   bool
	ended     bool
	announced bool // the created event was sent
}

// tracker derives changes from engine events and lists. A sandbox is announced once it runs, because its creation may
// fail without an event.
type tracker struct {
	known map[string]known
	// gone has the containers that are missing from the last list. Late events of such a container are ignored.
	gone map[string]bool
	// pods has the last sent status of each sandbox, for events after its removal.
	pods map[string]*runtimeapi.PodSandboxStatus
}

func newTracker() *tracker {
	return &tracker{known: map[string]known{}, pods: map[string]*runtimeapi.PodSandboxStatus{}}
}

func identify(id, name string, labels map[string]string) (known, bool) {
	if sandbox, ok := state.DecodeSandbox(name, labels); ok {
		return known{sandboxID: id, sandbox: sandbox, isSandbox: true}, true
	}
	c, ok := state.DecodeContainer(name, labels)
	return known{sandboxID: c.SandboxID}, ok
}

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

func (t *tracker) advance(id string, c known, at int64) []change {
	before := t.known[id]
	var changes []change
	add := func(kind runtimeapi.ContainerEventType) {
		changes = append(changes, change{id: id, kind: kind, at: at, c: c})
	}
	if !before.announced && (!c.isSandbox || c.running) {
		c.announced = true
		add(created)
	}
	if c.running && !before.running {
		add(started)
	}
	if c.ended && !before.ended && c.announced {
		add(stopped)
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

func (t *tracker) relist(list []container.Summary, at int64) []change {
	var changes []change
	here := map[string]bool{}
	for _, s := range list {
		here[s.ID] = true
		c, ok := t.known[s.ID]
		if !ok {
			if c, ok = identify(s.ID, state.ListedName(s), s.Labels); !ok {
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
