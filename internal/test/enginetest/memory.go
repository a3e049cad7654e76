package enginetest

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/system"
)

// Memory is an in-memory engine with the method signatures of the Docker client. It keeps images and containers and
// moves containers between states like a real engine, including names, id prefixes, filters and error classes. It runs
// no processes: a started container runs until it is stopped, killed or removed. Networks are only addresses. Errors of
// a real engine at start (missing programs, invalid security options) do not occur.
//
// The contract tests of the shim's services run with Memory and with a real engine.
type Memory struct {
	// About is the answer to Info. Change it before first use only.
	About   system.Info
	Version types.Version

	mu         sync.Mutex // guards the fields below
	faults     map[string]Fault
	calls      []string
	images     map[string]*memoryImage
	containers []*memoryContainer // in order of creation
	created    int
	listeners  []*listener
	journal    []events.Message // all events
	mute       bool             // events are not sent
}

// Fault is called before a method. If it returns nil, the call proceeds.
type Fault func(ctx context.Context) error

func NewMemory() *Memory {
	return &Memory{
		About: system.Info{
			ID: "memory", Architecture: "x86_64", OSType: "linux", CgroupDriver: "cgroupfs", CgroupVersion: "1",
			ServerVersion: "20.10.24", DefaultRuntime: "runc",
			Runtimes: map[string]system.RuntimeWithStatus{"runc": {}, "other": {}},
		},
		Version: types.Version{Version: "20.10.24", APIVersion: "1.41", MinAPIVersion: "1.12"},
		faults:  map[string]Fault{},
		images:  map[string]*memoryImage{},
	}
}

func (m *Memory) locked(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// Fail sets the fault of a method, named as in the client. nil removes it.
func (m *Memory) Fail(method string, f Fault) { m.locked(func() { m.faults[method] = f }) }

func (m *Memory) Calls() (calls []string) {
	m.locked(func() { calls = slices.Clone(m.calls) })
	return calls
}

// call records a call, applies its fault, which may block, and runs work with the lock held.
func call[R any](ctx context.Context, m *Memory, method string, work func() (R, error)) (answer R, err error) {
	m.mu.Lock()
	m.calls = append(m.calls, method)
	fault := m.faults[method]
	m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return answer, err
	}
	if fault != nil {
		if err := fault(ctx); err != nil {
			return answer, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return work()
}

func (m *Memory) Info(ctx context.Context) (system.Info, error) {
	return call(ctx, m, "Info", func() (system.Info, error) {
		info := m.About
		info.Images, info.Containers = len(m.images), len(m.containers)
		info.SystemTime = time.Now().Format(time.RFC3339Nano)
		return info, nil
	})
}

func (m *Memory) ServerVersion(ctx context.Context) (types.Version, error) {
	return call(ctx, m, "ServerVersion", func() (types.Version, error) { return m.Version, nil })
}

func (m *Memory) ClientVersion() string { return m.Version.APIVersion }

func (m *Memory) Ping(ctx context.Context) (types.Ping, error) {
	return call(ctx, m, "Ping", func() (types.Ping, error) { return types.Ping{APIVersion: m.Version.APIVersion}, nil })
}

// DiskUsage reports images of one byte each.
func (m *Memory) DiskUsage(ctx context.Context, _ types.DiskUsageOptions) (types.DiskUsage, error) {
	return call(ctx, m, "DiskUsage", func() (types.DiskUsage, error) { return types.DiskUsage{LayersSize: int64(len(m.images))}, nil })
}

// backlog is the number of events a listener may lag behind before the engine blocks.
const backlog = 1024

type listener struct {
	messages chan events.Message
	errs     chan error
}

// Events ignores filters: each listener gets all later events, or with Until all past events.
func (m *Memory) Events(ctx context.Context, o events.ListOptions) (<-chan events.Message, <-chan error) {
	if o.Until != "" {
		return m.pastEvents(ctx)
	}
	l := &listener{make(chan events.Message, backlog), make(chan error, 1)}
	_, err := call(ctx, m, "Events", func() (any, error) {
		m.listeners = append(m.listeners, l)
		context.AfterFunc(ctx, func() { m.locked(func() { m.endEvents(ctx.Err(), l) }) })
		return nil, nil
	})
	if err != nil {
		l.errs <- err
	}
	return l.messages, l.errs
}

func (m *Memory) pastEvents(ctx context.Context) (<-chan events.Message, <-chan error) {
	messages, errs := make(chan events.Message), make(chan error, 1)
	var journal []events.Message
	m.locked(func() { journal = slices.Clone(m.journal) })
	go func() {
		for _, message := range journal {
			select {
			case messages <- message:
			case <-ctx.Done():
				errs <- ctx.Err()
				return
			}
		}
		errs <- io.EOF
	}()
	return messages, errs
}

// endEvents ends the given streams that are still open. The caller holds the lock.
func (m *Memory) endEvents(err error, ended ...*listener) {
	m.listeners = slices.DeleteFunc(m.listeners, func(l *listener) bool {
		if !slices.Contains(ended, l) {
			return false
		}
		l.errs <- err
		return true
	})
}

// BreakEvents ends all event streams, as a restart of the engine would.
func (m *Memory) BreakEvents(err error) {
	m.locked(func() { m.endEvents(err, slices.Clone(m.listeners)...) })
}

func (m *Memory) Listeners() (n int) {
	m.locked(func() { n = len(m.listeners) })
	return n
}

// MuteEvents drops later events, as an engine does for a slow listener.
func (m *Memory) MuteEvents(mute bool) { m.locked(func() { m.mute = mute }) }

func (m *Memory) Emit(message events.Message) { m.locked(func() { m.emit(message) }) }

func (m *Memory) emit(message events.Message) {
	m.journal = append(m.journal, message)
	if m.mute {
		return
	}
	for _, l := range m.listeners {
		l.messages <- message
	}
}

// event sends an event with the current time. The caller holds the lock.
func (m *Memory) event(kind events.Type, action events.Action, id string, attributes map[string]string) {
	at := time.Now()
	m.emit(events.Message{
		Type: kind, Action: action, Time: at.Unix(), TimeNano: at.UnixNano(), Actor: events.Actor{ID: id, Attributes: attributes},
	})
}

func (m *Memory) containerEvent(c *memoryContainer, action events.Action) {
	attributes := map[string]string{}
	maps.Copy(attributes, c.config.Labels)
	attributes["name"], attributes["image"] = c.name, c.config.Image
	m.event(events.ContainerEventType, action, c.id, attributes)
}
