package commands

import (
	"context"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// pace is how often wait asks by itself.
type pace struct {
	asking    time.Duration // where the runtime has no events
	listening time.Duration // where it has: some are lost, on some runtimes
}

// waitPace is the usual one. A status costs the runtime less than a
// millisecond.
var waitPace = pace{asking: 200 * time.Millisecond, listening: time.Second}

// doorbell rings when the runtime tells of something that has happened.
type doorbell struct {
	rings chan struct{}
	deaf  atomic.Bool // the runtime has no events, or none any more
	ended chan struct{}
}

// listen watches the runtime's events until ctx ends; ended tells when it
// does so no more.
func listen(ctx context.Context, conn *client.Conn) *doorbell {
	d := &doorbell{rings: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		defer d.deaf.Store(true)
		events, err := conn.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		for err == nil {
			if _, err = events.Recv(); err == nil {
				d.ring()
			}
		}
	}()
	return d
}

// ring never waits: one ring that nobody has answered yet stands for all.
func (d *doorbell) ring() {
	select {
	case d.rings <- struct{}{}:
	default:
	}
}

// patience is how long to wait for a ring before asking. What the runtime
// answers to the wish for events, it answers soon: at first that is waited for.
func (d *doorbell) patience(p pace, first bool) time.Duration {
	if first || d.deaf.Load() {
		return p.asking
	}
	return p.listening
}
