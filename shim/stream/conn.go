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
	// maxPending limits connections that have not shown a token. The oldest is closed, because a legitimate client
	// sends its request at once.
	maxPending = maxRequests
	// lingerTime is how long a closed connection is still read. Otherwise the kernel would reset it because of unread
	// data, and the last response would be lost.
	lingerTime = 2 * time.Second
	// goneInterval is the interval at which the kernel is asked whether the peer has closed, while nothing reads the
	// connection.
	goneInterval = time.Second

	established = 1 // the kernel's code for TCP_ESTABLISHED
)

var (
	errClientGone = errors.New("the client closed the connection")
	errIdle       = errors.New("the session was idle for too long")
)

type listener struct {
	net.Listener
	ctx  context.Context // ends with the server
	idle time.Duration   // idle time after which a session ends

	mu      sync.Mutex
	conns   map[*conn]struct{} // all open connections; nil after the server was closed
	pending []*conn            // connections that have not shown a token, oldest first
}

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

func (l *listener) closeAll() {
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	for c := range conns {
		_ = c.cut()
	}
}

func (l *listener) removePending(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = slices.DeleteFunc(l.pending, func(p *conn) bool { return p == c })
}

type conn struct {
	net.Conn
	listener *listener
	ctx      context.Context // ends when the client has gone or the connection was closed
	end      context.CancelCauseFunc
	closing  sync.Once
	upgraded atomic.Bool
	reads    atomic.Uint64 // started and returned reads: an odd count is a read in progress
	writes   atomic.Uint64 // returned writes
}

type connKey struct{}

func connOf(r *http.Request) *conn { return r.Context().Value(connKey{}).(*conn) }

func requestContext(_ context.Context, raw net.Conn) context.Context {
	c := tracked(raw)
	return context.WithValue(c.ctx, connKey{}, c)
}

// onState starts watching a hijacked connection. Only a request with a valid token hijacks its connection.
func onState(raw net.Conn, state http.ConnState) {
	if c := tracked(raw); state == http.StateHijacked {
		c.upgraded.Store(true)
		c.listener.removePending(c)
		go c.watch()
	}
}

func tracked(raw net.Conn) *conn {
	if t, ok := raw.(*tls.Conn); ok {
		raw = t.NetConn()
	}
	return raw.(*conn)
}

func (c *conn) Read(b []byte) (int, error) {
	c.reads.Add(1)
	n, err := c.Conn.Read(b)
	c.reads.Add(1)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.leave(errClientGone)
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.writes.Add(1)
	return n, err
}

// leave ends all work for the client. A client that still reads has a moment to receive the result.
func (c *conn) leave(cause error) {
	if c.ctx.Err() == nil {
		time.AfterFunc(lingerTime, func() { _ = c.cut() })
	}
	c.end(cause)
}

// Close closes the sending direction and reads the other for lingerTime.
func (c *conn) Close() (err error) {
	c.closing.Do(func() {
		if c.Conn.(*net.TCPConn).CloseWrite() != nil {
			err = c.cut()
			return
		}
		go func() {
			timer := time.AfterFunc(lingerTime, func() { _ = c.cut() })
			defer timer.Stop()
			_, _ = io.Copy(io.Discard, c.Conn) // an error ends the read as well
			_ = c.cut()
		}()
	})
	return err
}

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

// watch detects idle sessions, and clients that leave while nothing reads the connection.
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
		// An odd count is a read in progress, which detects the end of the connection by itself.
		switch unread := reads == lastReads && reads%2 == 0; {
		case unread && peerLeft(c.Conn.(*net.TCPConn)):
			c.leave(errClientGone)
		case time.Since(moved) > c.listener.idle:
			c.leave(errIdle)
		}
	}
}

// peerLeft reports whether a peer on this machine has closed the connection. The end of the connection is queued behind
// unread data, but the kernel's socket table shows the peer's state. Peers on other machines never count as gone.
func peerLeft(c *net.TCPConn) bool {
	local, remote := c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return false
	}
	// An IPv6 socket may carry an IPv4 connection, possibly at one end only.
	for _, table := range []func() (procfs.NetTCP, error){fs.NetTCP, fs.NetTCP6} { //nolint:staticcheck // avoids a netlink library
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
	return remote.IP.IsLoopback() // the peer's socket no longer exists
}
