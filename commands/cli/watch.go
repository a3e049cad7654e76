package cli

import (
	"context"
	"errors"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// WatchFlag returns --watch of the verbs that list.
func WatchFlag(to *bool) urfave.Flag {
	return BoolFlag(to, "watch", "Keep printing changes after the list until interrupted", "w")
}

const (
	// pollInterval is the poll interval for a runtime without events.
	pollInterval = time.Second
	// pollAnyway is the poll interval for a runtime with events: some changes in a list cause no event.
	pollAnyway = 10 * time.Second
	// eventsSettle is the wait after an event for events that follow it closely.
	eventsSettle = 50 * time.Millisecond
)

// Watch calls show at once and after each event of the runtime, until the user interrupts. It also calls show every
// ten seconds, or each second if the runtime has no events.
func Watch(ctx context.Context, conn *client.Conn, show func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	happened, noEvents := make(chan struct{}, 1), make(chan struct{})
	listened := make(chan struct{})
	// The call returns before the runtime has subscribed: the next poll shows a change that the stream and the first list miss.
	events, err := conn.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	go func() {
		defer close(listened)
		defer close(noEvents)
		for err == nil {
			if _, err = events.Recv(); err == nil {
				select {
				case happened <- struct{}{}:
				default:
				}
			}
		}
	}()
	defer func() { cancel(); <-listened }()
	interval := pollAnyway
	for {
		err := show(ctx)
		if ctx.Err() != nil {
			return ErrFollowed
		}
		if err != nil {
			return err
		}
		timer := time.NewTimer(interval)
		select {
		case <-happened:
			err = Sleep(ctx, eventsSettle)
		case <-noEvents:
			noEvents, interval = nil, pollInterval // takes effect with the next timer
		case <-timer.C:
		case <-ctx.Done():
			err = ctx.Err()
		}
		timer.Stop()
		if errors.Is(err, context.Canceled) {
			return ErrFollowed
		}
	}
}
