package enginetest

import (
	"context"
	"maps"
	"slices"

	"github.com/docker/docker/api/types/events"
)

// backlog is how many events a listener may be behind before the engine waits.
const backlog = 1024

// listener is one event stream.
type listener struct {
	messages chan events.Message
	errs     chan error
}

// Events implements the client's method, without filters: every listener hears
// everything, from now on.
func (m *Memory) Events(ctx context.Context, _ events.ListOptions) (<-chan events.Message, <-chan error) {
	l := &listener{make(chan events.Message, backlog), make(chan error, 1)}
	end, err := m.begin(ctx, "Events")
	if err != nil {
		l.errs <- err
		return l.messages, l.errs
	}
	defer end()
	m.listeners = append(m.listeners, l)
	context.AfterFunc(ctx, func() { m.hangUp(l, ctx.Err()) })
	return l.messages, l.errs
}

func (m *Memory) hangUp(l *listener, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.listeners, l); i >= 0 {
		m.listeners = slices.Delete(m.listeners, i, i+1)
		l.errs <- err
	}
}

// BreakEvents ends all event streams, as an engine does that is restarted.
func (m *Memory) BreakEvents(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.listeners {
		l.errs <- err
	}
	m.listeners = nil
}

// Listeners is the number of open event streams.
func (m *Memory) Listeners() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.listeners)
}

// tell is called with the lock held.
func (m *Memory) tell(c *memoryContainer, action events.Action) {
	attributes := maps.Clone(c.config.Labels)
	if attributes == nil {
		attributes = map[string]string{}
	}
	attributes["name"], attributes["image"] = c.name, c.config.Image
	at := now()
	m.emit(events.Message{
		Type: events.ContainerEventType, Action: action, Time: at.Unix(), TimeNano: at.UnixNano(),
		Actor: events.Actor{ID: c.id, Attributes: attributes},
	})
}

// Emit tells every listener.
func (m *Memory) Emit(message events.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.emit(message)
}

// MuteEvents keeps events back for good, as an engine does from a listener that
// is slow.
func (m *Memory) MuteEvents(mute bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mute = mute
}

// emit is called with the lock held.
func (m *Memory) emit(message events.Message) {
	if m.mute {
		return
	}
	for _, l := range m.listeners {
		l.messages <- message
	}
}

// tellImage is called with the lock held.
func (m *Memory) tellImage(id string, action events.Action) {
	at := now()
	m.emit(events.Message{
		Type: events.ImageEventType, Action: action, Time: at.Unix(), TimeNano: at.UnixNano(), Actor: events.Actor{ID: id},
	})
}
