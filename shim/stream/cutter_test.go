package stream

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// cutter is a proxy whose connections can be cut like those of a client that is
// killed, whatever that client waits for.
type cutter struct {
	url string

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newCutter(t *testing.T, streamingURL string) *cutter {
	t.Helper()
	u, err := url.Parse(streamingURL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{}
	target := u.Host
	u.Host = l.Addr().String()
	c.url = u.String()
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", target)
			if err != nil {
				from.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, from, to)
			c.mu.Unlock()
			for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
				c.wg.Add(1)
				go func() {
					defer c.wg.Done()
					_, _ = io.Copy(pair[0], pair[1])
				}()
			}
		}
	}()
	t.Cleanup(func() { l.Close(); c.cut(); c.wg.Wait() })
	return c
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
}
