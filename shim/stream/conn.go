package stream

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lingerTime is how long a closed connection goes on being read, so that
	// what the client still sends does not make the kernel reset the connection
	// and take away the last answer with it.
	lingerTime = 2 * time.Second
	// goneInterval is how often a connection is asked whether its other end has
	// closed, for the time that nobody can read from it because the process in
	// the container takes no more input.
	goneInterval = time.Second
)

// trackedListener hands out connections that know when their client is gone.
type trackedListener struct {
	net.Listener
	mu    sync.Mutex
	conns map[*trackedConn]struct{} // every one that is open; nil when the server is closed
	wg    sync.WaitGroup            // lingering connections
}

func newTrackedListener(l net.Listener) *trackedListener {
	return &trackedListener{Listener: l, conns: map[*trackedConn]struct{}{}}
}

// Accept implements net.Listener.
func (l *trackedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tc := &trackedConn{Conn: c, owner: l, gone: make(chan struct{}), shut: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	l.conns[tc] = struct{}{}
	return tc, nil
}

// closeAll cuts every connection off and waits for those that linger.
func (l *trackedListener) closeAll() {
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	for c := range conns {
		_ = c.cut()
	}
	l.wg.Wait()
}

func (l *trackedListener) forget(c *trackedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// linger counts one more lingering connection, unless the server is closed.
func (l *trackedListener) linger() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return false
	}
	l.wg.Add(1)
	return true
}

// trackedConn is a connection of the streaming server.
type trackedConn struct {
	net.Conn
	owner   *trackedListener
	gone    chan struct{} // closed when the client has gone, or the connection was closed
	lost    sync.Once
	closing sync.Once
	cutting sync.Once
	shut    chan struct{} // closed when the connection is cut
	reads   atomic.Uint64 // reads that began and reads that returned
}

// Read implements net.Conn.
func (c *trackedConn) Read(b []byte) (int, error) {
	c.reads.Add(1)
	n, err := c.Conn.Read(b)
	c.reads.Add(1)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.lose()
	}
	return n, err
}

func (c *trackedConn) lose() { c.lost.Do(func() { close(c.gone) }) }

// Close implements net.Conn. The connection is closed in one direction at once
// and read for a short while longer.
func (c *trackedConn) Close() error {
	var err error
	c.closing.Do(func() {
		half, ok := c.Conn.(interface{ CloseWrite() error })
		if !ok || half.CloseWrite() != nil || !c.owner.linger() {
			err = c.cut()
			return
		}
		go func() {
			defer c.owner.wg.Done()
			timer := time.AfterFunc(lingerTime, func() { _ = c.cut() })
			defer timer.Stop()
			_, _ = io.Copy(io.Discard, c.Conn) // an error ends it like the end of the stream
			_ = c.cut()
		}()
	})
	return err
}

// cut closes the connection for good.
func (c *trackedConn) cut() (err error) {
	c.cutting.Do(func() {
		err = c.Conn.Close()
		c.lose()
		close(c.shut)
		c.owner.forget(c)
	})
	return err
}

// watch finds out that the client has closed its end while nobody reads. It
// returns when it has, or when stop is closed.
func (c *trackedConn) watch(stop <-chan struct{}) {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return
	}
	tick := time.NewTicker(goneInterval)
	defer tick.Stop()
	last := c.reads.Load()
	for {
		select {
		case <-stop:
			return
		case <-c.shut:
			return
		case <-tick.C:
		}
		reads := c.reads.Load()
		// An odd count is a read that waits, and will see the end by itself.
		if stuck := reads == last && reads%2 == 0; stuck && peerLeft(tcp) {
			c.lose()
			return
		}
		last = reads
	}
}

// tracked finds the tracked connection below TLS.
func tracked(c net.Conn) (*trackedConn, bool) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	tc, ok := c.(*trackedConn)
	return tc, ok
}
