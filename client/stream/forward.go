package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moby/spdystream"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/crishim/crishim/internal/frames"
)

// alivePeriod is the interval at which Forward checks whether the pod still runs. A runtime does not report the end of
// a pod with an open tunnel.
const alivePeriod = 2 * time.Second

// Forward carries connections from local ports into a pod. It returns nil when ctx ends and errPodEnded when the pod
// ends. url asks the runtime for a streaming URL, once per tunnel. Options.Failed receives the error of each failed
// connection; the other connections continue.
func Forward(ctx context.Context, url func(context.Context) (string, error), ports []Port, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	if o.Transport == transportWebSocket {
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
	defer f.pool.close()
	first, err := f.pool.get(ctx) // reports an unreachable pod before the first connection
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
	f.pool.close()
	f.running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

type forwarder struct {
	pool    *pool
	o       Options
	running sync.WaitGroup
	request atomic.Uint64
}

func (f *forwarder) accept(ctx context.Context, end context.CancelCauseFunc, l bound) {
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close() // the forwarder is shutting down
			}
			return
		}
		if errors.Is(err, net.ErrClosed) {
			end(fmt.Errorf("accept connections for port %s: %w", l.port, err))
			return
		}
		if err != nil { // temporary, such as too many open files
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		if f.o.Accepted != nil {
			f.o.Accepted(l.Addr())
		}
		f.running.Go(func() {
			if err := f.carry(ctx, conn.(*net.TCPConn), l.port); err != nil && ctx.Err() == nil && f.o.Failed != nil {
				f.o.Failed(l.port, err)
			}
		})
	}
}

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
				end(errPodEnded)
				return
			}
		}
	}
}

const (
	backlogChunks = 32 // number of frames that are buffered for a slow local client before its tunnel blocks
	messageLimit  = 64 << 10
	// stuckTimeout is the time after which an unanswered request for a stream moves to another tunnel. spdystream
	// handles the streams of a tunnel with five workers. A worker is blocked if the server leaves input of a finished
	// connection unread.
	stuckTimeout   = 5 * time.Second
	verdictTimeout = 10 * time.Second // wait for the server's result after both directions have ended
)

var (
	errLocalGone  = errors.New("the local client went away")
	errTunnelLost = errors.New("the streaming connection broke")
)

type forwarded struct {
	local      *net.TCPConn
	tunnel     *tunnel
	data, errs httpstream.Stream
	ended      atomic.Bool // all input has been sent
	early      atomic.Bool // the server finished before all input was sent
}

func (f *forwarder) carry(ctx context.Context, local *net.TCPConn, p Port) error {
	defer local.Close()
	c, err := f.open(ctx, local, p.Remote)
	if err != nil {
		abort(local)
		return err
	}
	defer f.pool.put(c.tunnel)
	stop := context.AfterFunc(ctx, func() { local.Close() })
	defer stop()
	return c.copy()
}

// open creates the streams. If the tunnel is broken or stuck, open tries another.
func (f *forwarder) open(ctx context.Context, local *net.TCPConn, remote uint16) (*forwarded, error) {
	for try := 1; ; try++ {
		t, err := f.pool.get(ctx)
		if err != nil {
			return nil, err
		}
		c := &forwarded{local: local, tunnel: t}
		timeout := upgradeTimeout
		if try == 1 {
			timeout = stuckTimeout
		}
		err = c.create(ctx, timeout, strconv.FormatUint(f.request.Add(1), 10), remote)
		if err == nil {
			return c, nil
		}
		var said *RemoteError
		if errors.As(err, &said) {
			c.discard()
			f.pool.put(t)
			return nil, err
		}
		t.spoiled.Store(true)
		c.discard()
		f.pool.put(t)
		if try == 2 || ctx.Err() != nil {
			return nil, fmt.Errorf("open connection to port %d: %w", remote, err)
		}
	}
}

func (c *forwarded) create(ctx context.Context, timeout time.Duration, id string, remote uint16) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTunnelLost)
	defer cancel()
	headers := func(kind string) http.Header {
		return http.Header{"port": {strconv.Itoa(int(remote))}, "requestID": {id}, "streamType": {kind}}
	}
	if c.errs, err = c.tunnel.open(ctx, headers("error")); err != nil {
		return err
	}
	_ = c.errs.Close() // nothing is sent on the error stream; if the tunnel is broken, the next open fails
	c.data, err = c.tunnel.open(ctx, headers("data"))
	if !errors.Is(err, spdystream.ErrReset) {
		return err
	}
	// Runtimes may serve a connection before they confirm its second stream. If the connection fails at once, they
	// reset the stream instead of confirming it, and send the reason on the error stream. ctx limits the wait for the
	// reason.
	defer context.AfterFunc(ctx, func() { _ = c.errs.Reset() })()
	return cmp.Or(c.verdict(), err)
}

// discard removes the streams on both sides.
func (c *forwarded) discard() {
	for _, s := range []httpstream.Stream{c.data, c.errs} {
		if s != nil {
			_ = s.Reset() // a broken tunnel removes its streams by itself
			c.tunnel.RemoveStreams(s)
		}
	}
}

// copy moves bytes in both directions and leaves no goroutine behind. It resets a failed connection, so that the client
// does not mistake a partial answer for a complete one.
func (c *forwarded) copy() error {
	sent, received, verdict := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { sent <- c.send() })
	running.Go(func() { received <- c.receive() })
	running.Go(func() { verdict <- c.verdict() })
	err := follow(sent, received, verdict)
	if err != nil {
		abort(c.local)
	}
	if c.early.Load() {
		// The server may leave the rest of the input unread. Unread input blocks a worker (see stuckTimeout), so this
		// tunnel gets no new connections.
		c.tunnel.spoiled.Store(true)
	}
	if errors.Is(err, errLocalGone) {
		// The server treats a reset only as the end of its input and keeps sending. Unread data blocks a tunnel, so
		// this tunnel gets no new connections and is closed when its other connections have ended.
		c.tunnel.spoiled.Store(true)
		err = nil
	}
	c.discard()
	_ = c.local.Close() // both directions have ended
	running.Wait()
	return err
}

// follow waits until the pod has sent all data and the server has sent its result. After both directions have ended,
// it waits for the result for verdictTimeout. A missing result is a success.
func follow(sent, received, verdict <-chan error) error {
	var down, up, over bool
	var late <-chan time.Time
	for !down || !over {
		var err error
		select {
		case err = <-sent:
			up = true
		case err = <-received:
			down = true
		case err = <-verdict:
			over = true
		case <-late:
			return nil
		}
		if err != nil {
			return err
		}
		if down && up && late == nil {
			late = time.After(verdictTimeout)
		}
	}
	return nil
}

func (c *forwarded) send() error {
	err := frames.Copy(c.data, c.local)
	if errors.Is(err, syscall.ECONNRESET) {
		return errLocalGone
	}
	c.ended.Store(true)
	_ = c.data.Close() // the server may have finished first
	return nil
}

// receive copies to the local client and forwards the half-close. The queue holds backlogChunks frames for a slow client.
// A full queue blocks the tunnel, which gets no new connections meanwhile.
func (c *forwarded) receive() error {
	queue := make(chan []byte, backlogChunks)
	gone := make(chan struct{})
	go c.fill(queue, gone)
	for chunk := range queue {
		if _, err := c.local.Write(chunk); err != nil {
			close(gone)
			return errLocalGone
		}
	}
	_ = c.local.CloseWrite() // fails if the client has gone
	return nil
}

func (c *forwarded) fill(queue chan<- []byte, gone <-chan struct{}) {
	defer close(queue)
	for {
		chunk, err := c.data.(*spdystream.Stream).ReadData() // one frame, without copying
		if len(chunk) > 0 && !c.enqueue(queue, chunk, gone) {
			return
		}
		if err != nil {
			return
		}
	}
}

func (c *forwarded) enqueue(queue chan<- []byte, chunk []byte, gone <-chan struct{}) bool {
	select {
	case queue <- chunk:
		return true
	default:
	}
	c.tunnel.stalled.Add(1)
	defer c.tunnel.stalled.Add(-1)
	select {
	case queue <- chunk:
		return true
	case <-gone:
		return false
	}
}

// verdict waits for the error message that the server sends when it is done. An empty message means success.
func (c *forwarded) verdict() error {
	text, _ := io.ReadAll(io.LimitReader(c.errs, messageLimit)) // an incomplete message is still useful
	c.early.Store(!c.ended.Load())
	if msg := strings.TrimSpace(string(text)); msg != "" {
		return &RemoteError{Message: withoutPod(msg)}
	}
	if c.tunnel.broken() {
		return errTunnelLost
	}
	return nil
}

// withoutPod strips the streaming server's prefix "error forwarding port 80 to pod ID, uid : ".
func withoutPod(message string) string {
	head, reason, ok := strings.Cut(message, ": ")
	if ok && strings.HasPrefix(head, "error forwarding port ") {
		return reason
	}
	return message
}

// abort makes Close send a reset.
func abort(c *net.TCPConn) { _ = c.SetLinger(0) }
