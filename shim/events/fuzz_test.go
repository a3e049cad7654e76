package events

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"

	"github.com/crishim/crishim/shim/state"
)

// truth is a model of the engine: some containers, and all messages so far.
type truth struct {
	slots [4]*box // the first two are sandboxes
	log   []events.Message
	made  int
}

type box struct {
	id             string
	labels         map[string]string
	running, ended bool
}

const engineName = "/k8s_POD_p_n_u_0"

// attributes returns the attributes of the engine's messages about a container.
func (b *box) attributes() map[string]string {
	attributes := maps.Clone(b.labels)
	attributes["name"] = strings.TrimPrefix(engineName, "/")
	return attributes
}

// do applies an action to a slot, if possible.
func (e *truth) do(what, slot int) {
	b := e.slots[slot]
	switch {
	case what == 0 && b == nil:
		e.made++
		b = &box{id: fmt.Sprint("id", e.made), labels: sandboxLabels()}
		if slot > 1 {
			b.labels = memberLabels("id1")
		}
		e.slots[slot] = b
		e.tell(b, events.ActionCreate)
	case b == nil:
	case what == 1 && !b.running:
		b.running, b.ended = true, false
		e.tell(b, events.ActionStart)
	case what == 2 && b.running:
		b.running, b.ended = false, true
		e.tell(b, events.ActionDie)
	case what == 3 && !b.running:
		e.slots[slot] = nil
		e.tell(b, events.ActionDestroy)
	case what == 4:
		e.tell(b, events.ActionRename)
	}
}

func (e *truth) tell(b *box, action events.Action) {
	e.log = append(e.log, events.Message{Action: action, Actor: events.Actor{ID: b.id, Attributes: b.attributes()}, TimeNano: int64(len(e.log) + 1)})
}

func (e *truth) list() []container.Summary {
	list := []container.Summary{{ID: "stranger", State: container.StateRunning}}
	for _, b := range e.slots {
		if b == nil {
			continue
		}
		s := container.Summary{ID: b.id, Names: []string{engineName}, Labels: b.labels, State: container.StateCreated}
		if b.running {
			s.State = container.StateRunning
		} else if b.ended {
			s.State = container.StateExited
		}
		list = append(list, s)
	}
	return list
}

// FuzzTracker applies actions while nobody is subscribed, between subscription and list, and later. The tracker must
// report a possible order of events for each container, and the true state at the end.
func FuzzTracker(f *testing.F) {
	f.Add("\x00\x01\x02\x03")
	f.Add("\x00\x01\x10\x12\x06\x11\x05\x07\x02\x12\x13\x03")
	f.Add("\x05\x06\x00\x01\x02\x03\x07")
	f.Add("\x10\x11\x12\x05\x06\x11\x12\x13\x07") // messages about a container that the list does not have
	f.Fuzz(func(t *testing.T, ops string) {
		e, tr := &truth{}, newTracker()
		heard := map[string][]string{}
		hear := func(changes []change) {
			for _, c := range changes {
				heard[c.id] = append(heard[c.id], strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(c.kind.String(), "CONTAINER_"), "_EVENT")))
			}
		}
		next, away, asked := 0, false, false // index of the next message to deliver
		listen := func() {
			for ; !away && next < len(e.log); next++ {
				hear(tr.message(e.log[next]))
			}
		}
		for _, op := range []byte(ops) {
			switch what := int(op % 16); {
			case what < 5:
				e.do(what, int(op/16)%len(e.slots))
			case what == 5:
				away, asked = true, false
			case what == 6 && away && !asked:
				asked, next = true, len(e.log)
			case what == 7 && asked:
				hear(tr.relist(e.list(), int64(len(e.log)+1)))
				away, asked = false, false
			}
			listen()
		}
		if away {
			next = len(e.log)
			hear(tr.relist(e.list(), int64(next)))
			away = false
		}
		listen()
		last := map[string]string{}
		for id, kinds := range heard {
			last[id] = kinds[len(kinds)-1]
			if order := " " + strings.Join(kinds, " "); !strings.HasPrefix(order, " created") || strings.Count(order, "created") > 1 || strings.Contains(order, "deleted ") ||
				strings.Contains(order, "started started") || strings.Contains(order, "stopped stopped") || strings.Contains(order, "started deleted") {
				t.Errorf("%s: heard%s", id, order)
			}
		}
		for _, b := range e.slots {
			if b == nil {
				continue
			}
			want := "created"
			if b.running {
				want = "started"
			} else if b.ended {
				want = "stopped"
			}
			isSandbox := b.labels[state.LabelType] == state.TypeSandbox
			if got := last[b.id]; got != want && !(got == "" && isSandbox && !b.running) {
				t.Errorf("%s: heard of %q last, want %q", b.id, got, want)
			}
			delete(last, b.id)
		}
		for id, kind := range last {
			if kind != "deleted" {
				t.Errorf("%s is gone, and %q was heard last", id, kind)
			}
		}
		if len(tr.known) > len(e.slots) {
			t.Errorf("%d containers are kept", len(tr.known))
		}
	})
}
