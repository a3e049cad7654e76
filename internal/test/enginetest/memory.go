package enginetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/system"
)

// Memory is an engine in memory with the signatures of the Docker client. It
// keeps images and containers and moves containers between their states the
// way the real engine does, names, id prefixes, filters and error classes
// included. It runs no process: a container that is started runs until it is
// stopped, killed or removed. Networks are only addresses, and what the real
// engine refuses at start (missing programs, bad security options) it takes.
//
// The contract tests of the shim's services run on Memory and on a real engine.
type Memory struct {
	// About is what Info answers; change it before the engine is used.
	About system.Info
	// Version is what ServerVersion answers.
	Version types.Version

	mu         sync.Mutex // guards everything below
	faults     map[string]Fault
	onCall     func(ctx context.Context, method string)
	calls      []string
	images     map[string]*memoryImage
	containers []*memoryContainer // in the order of creation
	created    int
	listeners  []*listener
	mute       bool // nobody hears anything
}

// Fault is called instead of a method; where it gives nil the call goes on.
type Fault func(ctx context.Context) error

// NewMemory gives an engine without images and containers.
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

// Fail puts a fault in the place of a method, named as in the client; nil takes
// it away.
func (m *Memory) Fail(method string, f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults[method] = f
}

// OnCall is given each call from now on, before it is answered; nil ends that.
func (m *Memory) OnCall(f func(ctx context.Context, method string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onCall = f
}

// Calls lists the methods called so far.
func (m *Memory) Calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.calls...)
}

// begin notes a call and meets its fault, without holding the lock, so that a
// fault may block. It gives the function that ends the call.
func (m *Memory) begin(ctx context.Context, method string) (func(), error) {
	m.mu.Lock()
	m.calls = append(m.calls, method)
	fault, onCall := m.faults[method], m.onCall
	m.mu.Unlock()
	if onCall != nil {
		onCall(ctx, method)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if fault != nil {
		if err := fault(ctx); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	return m.mu.Unlock, nil
}

// Info implements the client's method.
func (m *Memory) Info(ctx context.Context) (system.Info, error) {
	end, err := m.begin(ctx, "Info")
	if err != nil {
		return system.Info{}, err
	}
	defer end()
	info := m.About
	info.Images, info.Containers = len(m.images), len(m.containers)
	info.SystemTime = time.Now().Format(time.RFC3339Nano)
	return info, nil
}

// ServerVersion implements the client's method.
func (m *Memory) ServerVersion(ctx context.Context) (types.Version, error) {
	end, err := m.begin(ctx, "ServerVersion")
	if err != nil {
		return types.Version{}, err
	}
	defer end()
	return m.Version, nil
}

// Ping implements the client's method.
func (m *Memory) Ping(ctx context.Context) (types.Ping, error) {
	end, err := m.begin(ctx, "Ping")
	if err == nil {
		end()
	}
	return types.Ping{APIVersion: m.Version.APIVersion}, err
}

// Containers gives the names of all containers.
func (m *Memory) Containers() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, c := range m.containers {
		names = append(names, c.name)
	}
	return names
}

// Exit ends a container's process by itself.
func (m *Memory) Exit(id string, code int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, err := m.find(id); err == nil {
		c.exit(code)
		m.tell(c, events.ActionDie)
	}
}

func (m *Memory) find(ref string) (*memoryContainer, error) {
	var found *memoryContainer
	for _, c := range m.containers {
		switch {
		case c.id == ref || c.name == ref || "/"+c.name == ref:
			return c, nil
		case len(ref) > 0 && len(ref) < len(c.id) && c.id[:len(ref)] == ref:
			if found != nil {
				return nil, fmt.Errorf("multiple IDs found with provided prefix: %s: %w", ref, errdefs.ErrInvalidArgument)
			}
			found = c
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no such container: %s: %w", ref, errdefs.ErrNotFound)
	}
	return found, nil
}

func now() time.Time { return time.Now().UTC() }

var noTime = time.Time{}.Format(time.RFC3339Nano)

func stamp(t time.Time) string {
	if t.IsZero() {
		return noTime
	}
	return t.Format(time.RFC3339Nano)
}

// states that a container may be in.
const (
	created = container.StateCreated
	running = container.StateRunning
	exited  = container.StateExited
)
