package sandbox

import (
	"slices"
	"sync"

	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

// making knows the sandboxes that are not finished. They are in no list: a
// request that is cut off takes its sandbox away again, and a kubelet that has
// seen it would wait for it. The zero value is ready to use.
type making struct {
	mu  sync.Mutex
	ids map[string][]string // what a request has made so far, by the sandbox's name
}

// begin notes a request and gives the function that ends it. There is one for a
// name at a time.
func (m *making) begin(name string) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids == nil {
		m.ids = map[string][]string{}
	}
	m.ids[name] = nil
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.ids, name)
	}
}

func (m *making) made(name, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ids[name] = append(m.ids[name], id)
}

// has says whether a sandbox is not finished. Before the engine has told its id
// it is known by its name, and by never having run: another one of that name
// stays where it is.
func (m *making) has(p *runtimeapi.PodSandbox, c container.Summary) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids, busy := m.ids[state.SandboxName(p.GetMetadata())]
	return busy && (c.State == container.StateCreated || slices.Contains(ids, p.GetId()))
}
