package stream

import (
	"context"
	"io"
	"net"
	"time"

	"k8s.io/streaming/pkg/httpstream"

	"github.com/crishim/crishim/internal/enginestream"
)

// dropInterval is how often a data stream whose input has ended is asked
// whether the client has dropped it altogether. SPDY reports both as the end.
const dropInterval = 100 * time.Millisecond

// relay carries bytes between a data stream and a connection into the pod until
// both directions have ended, and closes the connection. The end of one
// direction is passed on and leaves the other alone.
func relay(ctx context.Context, data httpstream.Stream, target net.Conn) error {
	defer target.Close()
	defer context.AfterFunc(ctx, func() { _ = target.Close() })()

	up, down := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(up)
		send(data, target)
	}()
	go func() { down <- receive(data, target) }()

	var drops <-chan time.Time
	for {
		select {
		case <-up:
			up = nil
			tick := time.NewTicker(dropInterval)
			defer tick.Stop()
			drops = tick.C
		case <-drops:
			if dropped(data) {
				_ = target.Close()
			}
		case err := <-down:
			if err != nil || ctx.Err() != nil {
				_ = data.Reset() // ends the other direction, which may wait for the client
			}
			if up != nil {
				<-up
			}
			if ctx.Err() != nil || dropped(data) && err != nil {
				return errClientGone
			}
			return err
		}
	}
}

// send carries what the client sends and passes the end of it on. Where the pod
// takes no more the rest is dropped, and what the pod still sends decides how
// the connection ends.
func send(data httpstream.Stream, target net.Conn) {
	if err := enginestream.Copy(target, data); err != nil {
		_, _ = io.Copy(io.Discard, data)
		return
	}
	if half, ok := target.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// receive carries what the pod sends and passes the end of it on.
func receive(data httpstream.Stream, target net.Conn) error {
	if err := enginestream.Copy(data, target); err != nil {
		return err
	}
	return data.Close()
}

// dropped says whether a data stream of which this side has closed nothing is over.
func dropped(data httpstream.Stream) bool {
	s, ok := data.(interface{ IsFinished() bool })
	return ok && s.IsFinished()
}
