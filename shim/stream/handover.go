package stream

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/internal/handover"
	"github.com/crishim/crishim/shim/docker"
)

// isHandover says whether a request asks for the engine's connection.
func isHandover(r *http.Request) bool {
	return r.Header.Get(httpstream.HeaderUpgrade) == handover.Protocol
}

// handsOver says whether a connection is one that the engine's can be passed over.
func handsOver(r *http.Request) bool {
	conn, ok := r.Context().Value(connKey{}).(*trackedConn)
	if !ok {
		return false
	}
	_, ok = conn.Conn.(*net.UnixConn)
	return ok
}

// tellHandover names the socket to a client that asked for a session, of which a
// kubelet takes no notice.
func (s *Server) tellHandover(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handover != "" {
		_ = grpc.SetHeader(ctx, metadata.Pairs(api.HeaderHandover, s.handover)) // fails only where no RPC asks
	}
}

// listenHandover listens for clients that take the engine's connection. The socket has
// no file that could be left behind. It is reached from where loopback is, and like
// there the URL's token is what opens it. Its name is like no other, and not the short
// one that the kernel would give: a client elsewhere, which has the answer by way of a
// forwarded socket, must not find a neighbour's there.
func listenHandover() (net.Listener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: "@crishim-" + rand.Text()})
	if err != nil {
		return nil, fmt.Errorf("socket for sessions on this machine: %w", err)
	}
	return l, nil
}

// libraryBuffer is the size of the client library's buffer.
const libraryBuffer = 4096

// handed is the output of a process whose connection the client has.
type handed struct {
	stdin  bool
	socket *trackedConn
	conn   *handover.Conn
	raw    *docker.Noted // the engine's
	last   lastWords
	out    bytes.Buffer // what the shim itself has to say, on either output
	errs   bytes.Buffer
	heard  chan struct{}     // closed when the client has heard from the process
	ended  chan handover.End // gets how the engine's stream ended
	end    handover.End      // that, when it has
}

// openHandover makes a session of a connection that the engine's will be passed over.
func (s *Server) openHandover(w http.ResponseWriter, r *http.Request, want wanted) (*session, error) {
	hijacked, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	socket := hijacked.(*trackedConn) // handsOver has said so, and the next
	_, err = fmt.Fprintf(hijacked, "HTTP/1.1 %d %s\r\n%s: %s\r\n%s: %s\r\n\r\n", http.StatusSwitchingProtocols, http.StatusText(http.StatusSwitchingProtocols),
		httpstream.HeaderConnection, httpstream.HeaderUpgrade, httpstream.HeaderUpgrade, handover.Protocol)
	if err != nil {
		return nil, errors.Join(err, hijacked.Close())
	}
	h := &handed{stdin: want.stdin, socket: socket, conn: handover.NewShim(socket.Conn.(*net.UnixConn), readMore(buffered.Reader, hijacked)), heard: make(chan struct{}), ended: make(chan handover.End, 1)}
	h.last = lastWords{stdout: &h.out, tty: want.tty}
	if want.stderr {
		h.last.stderr = &h.errs
	}
	sizes := make(chan terminalSize, 1)
	go h.listen(sizes)
	out := &session{handed: h, finish: func(outcome error) {
		h.finish(outcome) // to a client that is gone there is nobody to tell
		_ = hijacked.Close()
	}}
	if want.tty {
		out.resize = sizes
	}
	return out, nil
}

// listen takes what the client says until it is gone. It waits for nobody else: the
// client's last words come behind its sizes, which nobody takes when the process
// could not be started.
func (h *handed) listen(sizes chan terminalSize) {
	defer close(sizes)
	heard := h.heard
	for {
		var m handover.FromClient
		if err := h.conn.Receive(&m); err != nil {
			_ = h.socket.cut() // a client that talks nonsense is gone as well
			h.tellEnd(handover.End{Error: errClientGone.Error()})
			return
		}
		switch {
		case m.Spoken && heard != nil:
			close(heard)
			heard = nil
		case m.Ended != nil:
			h.tellEnd(*m.Ended)
		case m.Size != nil:
			replace(sizes, terminalSize(*m.Size))
		}
	}
}

// replace puts a size into a channel with room for one, instead of an older one.
func replace(sizes chan terminalSize, size terminalSize) {
	for {
		select {
		case sizes <- size:
			return
		default:
		}
		select {
		case <-sizes:
		default:
		}
	}
}

// tellEnd tells the first end, which is the true one.
func (h *handed) tellEnd(end handover.End) {
	select {
	case h.ended <- end:
	default:
	}
}

// carry gives the connection away and waits for the client to be done with it.
func (h *handed) carry(conn types.HijackedResponse) error {
	raw, read, err := h.below(conn)
	if err == nil {
		err = h.conn.SendConn(handover.FromShim{Engine: &handover.Engine{Read: read}}, raw)
	}
	if err != nil {
		_ = h.conn.Close() // nobody could read what the process says
		return fmt.Errorf("hand the engine's connection over: %w", err)
	}
	// The kernel would tell this process, too, of all that arrives.
	_ = raw.Close()
	h.end = <-h.ended
	if h.end.Error != "" {
		return errors.New(h.end.Error)
	}
	return nil
}

// below is the connection below what the client library gave, and what the library
// has read from it together with the answer.
func (h *handed) below(conn types.HijackedResponse) (raw *net.UnixConn, read []byte, err error) {
	if raw = h.raw.Conn(); raw == nil {
		return nil, nil, errors.New("the engine's connection is none that can be handed over")
	}
	if conn.Conn == net.Conn(raw) {
		return raw, nil, nil
	}
	read = make([]byte, libraryBuffer)
	n, err := conn.Reader.Read(read) // which gives just what is in the buffer
	return raw, read[:n], err
}

func (h *handed) spoken() <-chan struct{} { return h.heard }

func (h *handed) open() { _ = h.conn.Send(handover.FromShim{Started: true}) } // the end of the connection is noticed elsewhere

// quiet leaves it to the client, which knows what comes and when.
func (h *handed) quiet(context.Context, time.Duration) <-chan struct{} {
	_ = h.conn.Send(handover.FromShim{Exited: true})
	return nil
}

func (h *handed) settle(st container.ExecInspect) (int, error) { return h.last.settle(st, h) }

// Open implements held.
func (h *handed) Open() error {
	_, err := h.out.Write(h.end.Held)
	return err
}

// Take implements held.
func (h *handed) Take() []byte { return h.end.Held }

// finish tells the client how it ended.
func (h *handed) finish(outcome error) {
	status, err := json.Marshal(statusOf(outcome))
	if err != nil {
		return
	}
	_ = h.conn.Send(handover.FromShim{Done: &handover.Done{Stdout: h.out.Bytes(), Stderr: h.errs.Bytes(), Status: status}})
}
