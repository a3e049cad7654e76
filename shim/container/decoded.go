package container

import (
	"sync"

	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/shim/state"
)

// decodedLabels are what the labels of the last list's containers say. Labels never
// change, and a kubelet asks for the list each second. What is in it is shared, and
// must not be changed.
type decodedLabels struct {
	mu   sync.Mutex
	byID map[string]decodedName // replaced, not changed
}

// decodedName goes with the name that the container had: it can be renamed.
type decodedName struct {
	name string
	state.Container
}

// lookup gives what decodes the containers of a list. What those of a whole list
// say is remembered; nothing is of the others.
func (d *decodedLabels) lookup(whole bool) (decode func(container.Summary) (state.Container, bool), done func()) {
	d.mu.Lock()
	known := d.byID
	d.mu.Unlock()
	next := known
	if whole {
		next = make(map[string]decodedName, len(known))
	}
	decode = func(c container.Summary) (state.Container, bool) {
		name := firstName(c)
		if had, ok := known[c.ID]; ok && had.name == name {
			if whole {
				next[c.ID] = had
			}
			return had.Container, true
		}
		fresh, ok := state.DecodeContainer(name, c.Labels)
		if ok && whole {
			next[c.ID] = decodedName{name, fresh}
		}
		return fresh, ok
	}
	done = func() {
		if whole {
			d.mu.Lock()
			d.byID = next
			d.mu.Unlock()
		}
	}
	return decode, done
}
