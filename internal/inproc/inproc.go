// Package inproc carries connections within a process past the network. The
// embedded shim's streaming server has an address like any other, and whoever
// dials that address from the same process gets one half of a socket pair: a
// loopback connection costs the kernel's whole TCP for each piece of a stream.
package inproc

import (
	"errors"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

var (
	mu        sync.Mutex // guards listeners
	listeners = map[string]*Listener{}
)

// Listener accepts what comes over the network, and what comes from this process.
type Listener struct {
	net.Listener
	inside  chan net.Conn
	outside chan accepted
	closed  chan struct{}
	close   sync.Once
}

type accepted struct {
	conn net.Conn
	err  error
}

// Listen makes the address of l one that this process reaches directly, until
// the Listener is closed, which closes l.
func Listen(l net.Listener) *Listener {
	w := &Listener{Listener: l, inside: make(chan net.Conn), outside: make(chan accepted), closed: make(chan struct{})}
	go w.acceptOutside()
	mu.Lock()
	defer mu.Unlock()
	listeners[l.Addr().String()] = w
	return w
}

func (l *Listener) acceptOutside() {
	for {
		c, err := l.Listener.Accept()
		select {
		case l.outside <- accepted{c, err}:
		case <-l.closed:
			if err == nil {
				_ = c.Close()
			}
			return
		}
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.inside:
		return c, nil
	case a := <-l.outside:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	err := net.ErrClosed
	l.close.Do(func() {
		mu.Lock()
		delete(listeners, l.Addr().String())
		mu.Unlock()
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}

// Dial connects to the Listener with an address; ok is false where this
// process has none.
func Dial(address string) (conn net.Conn, ok bool, err error) {
	mu.Lock()
	l := listeners[address]
	mu.Unlock()
	if l == nil {
		return nil, false, nil
	}
	near, far, err := Pair()
	if err != nil {
		return nil, true, err
	}
	select {
	case l.inside <- far:
		return near, true, nil
	case <-l.closed:
		return nil, true, errors.Join(net.ErrClosed, near.Close(), far.Close())
	}
}

// Pair makes two unix sockets that are connected with each other.
func Pair() (near, far *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		c, ferr := net.FileConn(f)
		err = errors.Join(err, ferr, f.Close())
		if ferr == nil {
			conns[i] = c.(*net.UnixConn)
		}
	}
	if err != nil {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
		return nil, nil, err
	}
	return conns[0], conns[1], nil
}
