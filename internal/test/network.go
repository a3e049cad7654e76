package test

import (
	"io"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
)

// SocketDir returns a temporary directory with a path that is short enough for sockets, independent of TMPDIR.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "crishim-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Proxy is a proxy whose connections can be broken, as by a network failure or a killed peer.
type Proxy struct {
	listener  net.Listener
	accepting chan struct{} // closed when it stops accepting
	passing   sync.WaitGroup
	mu        sync.Mutex // guards conns
	conns     []net.Conn
}

// StartProxy forwards connections from l. It ends with the test.
func StartProxy(t testing.TB, l net.Listener, network, address string) *Proxy {
	t.Helper()
	p := &Proxy{listener: l, accepting: make(chan struct{})}
	go func() {
		defer close(p.accepting)
		for {
			front, err := l.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial(network, address)
			if err != nil {
				front.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, front, back)
			p.mu.Unlock()
			p.passing.Go(func() { pass(back, front) })
			p.passing.Go(func() { pass(front, back) })
		}
	}()
	t.Cleanup(p.Close)
	return p
}

// ProxyURL starts a proxy for a URL's server and returns the URL through the proxy.
func ProxyURL(t testing.TB, raw string) (*Proxy, string) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := StartProxy(t, l, "tcp", u.Host)
	u.Host = l.Addr().String()
	return p, u.String()
}

func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.(interface{ CloseWrite() error }).CloseWrite()
}

// Open returns the number of connections since the last Cut.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2
}

func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// Close breaks all connections and accepts no new ones.
func (p *Proxy) Close() {
	p.listener.Close()
	<-p.accepting
	p.Cut()
	p.passing.Wait()
}
