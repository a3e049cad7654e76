package stream

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// tracker is a network between client and server that can break.
type tracker struct {
	mu      sync.Mutex
	conns   []net.Conn
	backend string
}

func (n *tracker) wrap(c *container) { n.backend = c.http.Listener.Addr().String() }

// through starts the network and returns raw as it is reached through it.
func (n *tracker) through(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = n.listen(t)
	return u.String()
}

func (n *tracker) listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			front, err := l.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial("tcp", n.backend)
			if err != nil {
				front.Close()
				continue
			}
			n.mu.Lock()
			n.conns = append(n.conns, front, back)
			n.mu.Unlock()
			running.Go(func() { relay(front, back) })
			running.Go(func() { relay(back, front) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		n.cut()
		running.Wait()
	})
	return l.Addr().String()
}

func relay(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
}

// cut breaks every connection.
func (n *tracker) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		c.Close()
	}
	n.conns = nil
}
