package docker

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/docker/docker/client"
)

// dialTime is what the client library gives a dial.
const dialTime = 10 * time.Second

type noteKey struct{}

// Noted is the connection that a call has made.
type Noted struct{ conn *net.UnixConn }

// Conn is nil where the call made none, or none to a unix socket.
func (n *Noted) Conn() *net.UnixConn { return n.conn }

// NoteConn gives a context for one call that begins a session, as the start of an
// exec does: such a call makes a connection of its own, and the client library
// wraps it when something came together with the answer.
func NoteConn(ctx context.Context) (context.Context, *Noted) {
	n := new(Noted)
	return context.WithValue(ctx, noteKey{}, n), n
}

// noteDials is the library's dial of a unix socket with the note made.
func noteDials(host string) []client.Opt {
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		return nil
	}
	dialer := &net.Dialer{Timeout: dialTime}
	return []client.Opt{client.WithDialContext(func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, "unix", path)
		if n, ok := ctx.Value(noteKey{}).(*Noted); ok && err == nil {
			n.conn = conn.(*net.UnixConn)
		}
		return conn, err
	})}
}

// IsLocal says whether the engine is reached over a unix socket.
func (e Endpoint) IsLocal() bool { return strings.HasPrefix(e.Host, "unix://") }
