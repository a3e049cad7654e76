package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"sync"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// relay takes connections on a local port and passes them on to a socket,
// which ssh forwards. ssh could take a port itself, but cannot choose a free one.
type relay struct {
	l      net.Listener
	socket string
	wg     sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns map[net.Conn]struct{}
}

// streamURL makes the address of a stream on the other machine usable here.
func (t *tunnel) streamURL(ctx context.Context, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address, nil // nothing to go by; whoever dials it will say so
	}
	local, err := t.forward(ctx, remoteAddress(u))
	if err != nil {
		return "", err
	}
	u.Host = local
	return u.String(), nil
}

// remoteAddress is where a streaming server listens, seen from its machine.
func remoteAddress(u *url.URL) string {
	host, port := u.Hostname(), u.Port()
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(host, port)
}

// forward brings an address of the other machine here, once.
func (t *tunnel) forward(ctx context.Context, remote string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.relays == nil {
		return "", errors.New("the connection is closed")
	}
	if r, ok := t.relays[remote]; ok {
		return r.l.Addr().String(), nil
	}
	socket := filepath.Join(t.dir.Path, fmt.Sprint("f", len(t.relays)))
	cmd := exec.CommandContext(ctx, "ssh", "-S", t.control(), "-O", "forward", "-L", socket+":"+remote, t.target)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("forward %s over ssh: %w: %s", remote, err, clean(string(out)))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	r := &relay{l: l, socket: socket, conns: map[net.Conn]struct{}{}}
	r.wg.Go(r.serve)
	t.relays[remote] = r
	return l.Addr().String(), nil
}

func (r *relay) serve() {
	for {
		in, err := r.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("unix", r.socket)
		if err != nil {
			_ = in.Close()
			continue
		}
		r.wg.Go(func() { r.join(in, out) })
	}
}

// join copies both ways until both ends are done; the end of one way is
// passed on, because a stream may go on in the other.
func (r *relay) join(a, b net.Conn) {
	r.keep(a, b)
	defer r.drop(a, b)
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			if w, ok := way[0].(interface{ CloseWrite() error }); ok {
				_ = w.CloseWrite()
			}
		})
	}
	wg.Wait()
}

func (r *relay) keep(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		if r.conns == nil {
			_ = c.Close()
			continue
		}
		r.conns[c] = struct{}{}
	}
}

func (r *relay) drop(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		delete(r.conns, c)
		_ = c.Close()
	}
}

func (r *relay) close() {
	_ = r.l.Close()
	r.mu.Lock()
	conns := r.conns
	r.conns = nil
	for c := range conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// localStreams puts addresses that work here into answers with a stream's URL.
func (l *link) localStreams(ctx context.Context, reply any) error {
	if l.tunnel == nil {
		return nil
	}
	var address *string
	switch r := reply.(type) {
	case *runtimeapi.ExecResponse:
		address = &r.Url
	case *runtimeapi.AttachResponse:
		address = &r.Url
	case *runtimeapi.PortForwardResponse:
		address = &r.Url
	default:
		return nil
	}
	local, err := l.tunnel.streamURL(ctx, *address)
	if err != nil {
		return &Error{Endpoint: l.endpoint, Code: codes.Unavailable, text: err.Error(), err: err}
	}
	*address = local
	return nil
}
