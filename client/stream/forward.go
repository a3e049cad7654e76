package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// alivePeriod is how often Forward asks whether the pod still runs. A runtime
// tells nobody when a pod with an open tunnel ends.
const alivePeriod = 2 * time.Second

// Forward carries connections to local ports into a pod, until the context
// ends, which is no error, or the pod does, which is ErrPodEnded. url asks the
// runtime for a streaming URL; it is called for the first tunnel, for more when
// there are many connections, and again when one breaks. A connection that
// fails is told to Options.Failed and ends alone.
func Forward(ctx context.Context, url func(context.Context) (string, error), ports []Port, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	if o.Transport == TransportWebSocket {
		return errors.New("port-forward over WebSocket: no runtime serves it; use the spdy transport")
	}
	listeners, err := listenAll(ctx, ports, o)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &forwarder{pool: &pool{url: url, o: o}, o: o}
	defer f.pool.shut()
	first, err := f.pool.get(ctx) // a pod that cannot be reached is said now
	if err != nil {
		return err
	}
	f.pool.put(first)

	for _, l := range listeners {
		f.running.Go(func() { f.accept(ctx, cancel, l) })
		if o.Ready != nil {
			o.Ready(l.Addr(), l.port.Remote)
		}
	}
	f.running.Go(func() { f.watch(ctx, cancel) })
	<-ctx.Done()
	closeAll(listeners)
	f.pool.shut()
	f.running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// forwarder is a running Forward.
type forwarder struct {
	pool    *pool
	o       Options
	running sync.WaitGroup
	request atomic.Uint64
}

// accept serves one listener.
func (f *forwarder) accept(ctx context.Context, end context.CancelCauseFunc, l bound) {
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close() // nobody serves it any more
			}
			return
		}
		if err != nil {
			if !pause(ctx, err) {
				end(fmt.Errorf("accept connections for port %s: %w", l.port, err))
				return
			}
			continue
		}
		f.running.Go(func() {
			if err := f.carry(ctx, conn.(*net.TCPConn), l.port); err != nil && ctx.Err() == nil {
				f.failed(l.port, err)
			}
		})
	}
}

// pause waits after an error that passes, such as too many open files.
func pause(ctx context.Context, err error) bool {
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (f *forwarder) failed(p Port, err error) {
	if f.o.Failed != nil {
		f.o.Failed(p, err)
	}
}

// watch ends the forwarding with the pod.
func (f *forwarder) watch(ctx context.Context, end context.CancelCauseFunc) {
	if f.o.Alive == nil {
		return
	}
	tick := time.NewTicker(alivePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if alive, err := f.o.Alive(ctx); err == nil && !alive {
				end(ErrPodEnded)
				return
			}
		}
	}
}
