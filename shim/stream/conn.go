package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
)

const (
	// maxPending is how many connections may be open that have shown no token: no more
	// can have one. Then the oldest is closed, as an honest client sends its request at once.
	maxPending = maxRequests
	// lingerTime is how long a closed connection goes on being read, so that
	// what the client still sends does not make the kernel reset the connection
	// and take away the last answer with it.
	lingerTime = 2 * time.Second
	// goneInterval is how often a connection is asked whether its other end has
	// closed, for the time that it cannot be read because the process in
	// the container takes no more input.
	goneInterval = time.Second

	established = 1 // the kernel's code for the state of a connection
)

// The causes with which a connection's context ends.
var (
	errClientGone = errors.New("the client closed the connection")
	errIdle       = errors.New("the session was idle for too long")
)

// listener accepts connections that know when their client is gone.
type listener struct {
	net.Listener
	ctx  context.Context // of the server
	idle time.Duration   // after which a session ends

	mu      sync.Mutex
	conns   map[*conn]struct{} // every one that is open; nil when the server is closed
	pending []*conn            // those that have shown no token, oldest first
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, listener: l}
	c.ctx, c.end = context.WithCancelCause(l.ctx)
	l.mu.Lock()
	if l.conns == nil {
		l.mu.Unlock()
		return nil, errors.Join(net.ErrClosed, c.cut())
	}
	l.conns[c] = struct{}{}
	l.pending = append(l.pending, c)
	var oldest *conn
	if len(l.pending) > maxPending {
		oldest = l.pending[0]
	}
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.cut()
	}
	return c, nil
}

// closeAll cuts every connection off.
func (l *listener) closeAll() {
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	for c := range conns {
		_ = c.cut()
	}
}

// removePending is for a connection that has shown a token, or is closed.
func (l *listener) removePending(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = slices.DeleteFunc(l.pending, func(p *conn) bool { return p == c })
}

// conn is a connection of the streaming server.
type conn struct {
	net.Conn
	listener *listener
	ctx      context.Context // ends when the client has gone, or the connection was closed
	end      context.CancelCauseFunc
	closing  sync.Once
	upgraded atomic.Bool
	reads    atomic.Uint64 // reads that began and reads that returned
	writes   atomic.Uint64 // writes that returned
}

type connKey struct{}

// connOf finds the connection of a request.
func connOf(r *http.Request) *conn { return r.Context().Value(connKey{}).(*conn) }

// requestContext is that of a connection's requests, for http.Server.ConnContext.
func requestContext(_ context.Context, raw net.Conn) context.Context {
	c := tracked(raw)
	return context.WithValue(c.ctx, connKey{}, c)
}

// onState follows a connection's state, for http.Server.ConnState. Only a request with a
// valid token takes its connection over.
func onState(raw net.Conn, state http.ConnState) {
	if c := tracked(raw); state == http.StateHijacked {
		c.upgraded.Store(true)
		c.listener.removePending(c)
		go c.watch()
	}
}

// tracked finds our connection below TLS.
func tracked(raw net.Conn) *conn {
	if t, ok := raw.(*tls.Conn); ok {
		raw = t.NetConn()
	}
	return raw.(*conn)
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	c.reads.Add(1)
	n, err := c.Conn.Read(b)
	c.reads.Add(1)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.leave(errClientGone)
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.writes.Add(1)
	return n, err
}

// leave ends what is done for the client. One that reads has a moment to learn the outcome.
func (c *conn) leave(cause error) {
	if c.ctx.Err() == nil {
		time.AfterFunc(lingerTime, func() { _ = c.cut() })
	}
	c.end(cause)
}

// Close implements net.Conn. The connection is closed in one direction at once
// and read for a short while longer.
func (c *conn) Close() (err error) {
	c.closing.Do(func() {
		if c.Conn.(*net.TCPConn).CloseWrite() != nil {
			err = c.cut()
			return
		}
		go func() {
			timer := time.AfterFunc(lingerTime, func() { _ = c.cut() })
			defer timer.Stop()
			_, _ = io.Copy(io.Discard, c.Conn) // an error ends it like the end of the stream
			_ = c.cut()
		}()
	})
	return err
}

// cut closes the connection for good.
func (c *conn) cut() error {
	c.end(errClientGone)
	c.listener.removePending(c)
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// watch finds out that the client has closed its end while nothing reads, and that nothing
// has moved for too long.
func (c *conn) watch() {
	tick := time.NewTicker(min(goneInterval, c.listener.idle))
	defer tick.Stop()
	reads, writes, moved := c.reads.Load(), c.writes.Load(), time.Now()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		lastReads, lastWrites := reads, writes
		reads, writes = c.reads.Load(), c.writes.Load()
		if reads != lastReads || writes != lastWrites {
			moved = time.Now()
		}
		// An odd count is a read that waits, and will see the end by itself.
		switch unread := reads == lastReads && reads%2 == 0; {
		case unread && peerLeft(c.Conn.(*net.TCPConn)):
			c.leave(errClientGone)
		case time.Since(moved) > c.listener.idle:
			c.leave(errIdle)
		}
	}
}

// peerLeft reports whether the process at the other end of a connection within
// this machine has closed it. When this end does not read, the kernel holds the
// end of the connection back behind the data that waits; but the peer's socket
// is in a table of this machine, and its state tells. Peers on other machines
// never count as gone.
func peerLeft(c *net.TCPConn) bool {
	local, remote := c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return false
	}
	// A socket of IPv6 may have a connection of IPv4, also at one end only.
	for _, table := range []func() (procfs.NetTCP, error){fs.NetTCP, fs.NetTCP6} { //nolint:staticcheck // netlink would be one more library for two numbers
		rows, err := table()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false
		}
		for _, row := range rows {
			if row.LocalPort == uint64(remote.Port) && row.RemPort == uint64(local.Port) && row.LocalAddr.Equal(remote.IP) && row.RemAddr.Equal(local.IP) {
				return row.St != established
			}
		}
	}
	return remote.IP.IsLoopback() // its socket is gone altogether
}
