package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/streaming/pkg/httpstream"

	"github.com/crishim/crishim/internal/enginestream"
	"github.com/crishim/crishim/internal/handover"
	"github.com/crishim/crishim/internal/inproc"
)

// errNoHandover says that the engine's connection is not to be had, and that the
// URL has not been used up.
var errNoHandover = errors.New("the shim's socket for sessions on this machine cannot be used")

// drainTime is how long output may take that a dead process left behind. Engines cut
// the stream after 2 s themselves.
const drainTime = 5 * time.Second

// handed is a session whose connection with the engine this process has.
type handed struct {
	control *handover.Conn
	tty     bool

	status  *io.PipeWriter
	drained atomic.Bool // the engine's end of stream is not waited for any more

	arrived chan struct{} // closed when there is a connection, or never will be
	mu      sync.Mutex    // held to set the next three, which do not change after arrived
	engine  net.Conn      // nil: there is none
	read    []byte        // from it already
	over    bool          // arrived is closed
}

// openHandover asks the shim for the engine's connection.
func openHandover(ctx context.Context, u *url.URL, socket string, s Streams, first size) (*channels, error) {
	ctx, cancel := context.WithTimeout(ctx, upgradeTimeout)
	defer cancel()
	conn, err := dialHandover(ctx, socket)
	if err != nil {
		return nil, err
	}
	h := &handed{control: handover.NewClient(conn), tty: s.TTY, arrived: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = h.upgrade(conn, u)
	if !stop() || err != nil {
		conn.Close()
		return nil, errors.Join(ctx.Err(), err)
	}
	ch := &channels{outputs: h.outputs, close: h.close}
	ch.status, h.status = io.Pipe()
	if s.In != nil {
		ch.stdin = handedInput{h}
	}
	if s.TTY {
		ch.resize = handedSize{h.control}
	}
	return ch, ch.setSize(first)
}

// dialHandover connects to the socket, in whichever way it is there. A runtime
// does not get to say that a file is one: behind that may be anybody, an engine
// for one, who would do what the runtime's URL asks for.
func dialHandover(ctx context.Context, socket string) (*net.UnixConn, error) {
	conn, ok, err := inproc.Dial(socket)
	switch {
	case ok:
	case !strings.HasPrefix(socket, "@"):
		err = fmt.Errorf("%q is a file", socket)
	default:
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoHandover, err)
	}
	return conn.(*net.UnixConn), nil
}

func (h *handed) upgrade(conn net.Conn, u *url.URL) error {
	req := &http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Header: http.Header{
		httpstream.HeaderConnection: {httpstream.HeaderUpgrade},
		httpstream.HeaderUpgrade:    {handover.Protocol},
	}}
	if err := req.Write(conn); err != nil {
		return fmt.Errorf("ask streaming server: %w", err)
	}
	resp, err := http.ReadResponse(h.control.Reader(), req)
	if err != nil {
		return fmt.Errorf("answer of streaming server: %w", err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotImplemented:
		return errNoHandover
	case resp.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(resp.Header.Get(httpstream.HeaderUpgrade), handover.Protocol):
		return upgradeError(resp)
	}
	return nil
}

// outputs carries the output, and returns when the shim has said how the session
// ended, or is gone. Every goroutine defers guard.
func (h *handed) outputs(stdout, stderr io.Writer, guard func()) {
	out := enginestream.NewOutput(h.tty, stdout, stderr)
	ctx, cancel := context.WithCancel(context.Background())
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	help := func(do func()) {
		helpers.Go(func() {
			defer guard()
			do()
		})
	}
	help(func() {
		select {
		case <-out.Spoken():
			_ = h.control.Send(handover.FromClient{Spoken: true}) // a shim that is gone is noticed below
		case <-ctx.Done():
		}
	})
	carried := make(chan struct{})
	help(func() {
		defer close(carried)
		h.carry(out)
	})
	defer h.status.Close()
	defer h.close()
	for {
		var m handover.FromShim
		if h.control.Receive(&m) != nil {
			return
		}
		switch {
		case m.Engine != nil:
			h.arrive(m.Engine.Read)
		case m.Started:
			_ = out.Open() // the writer has told of its failure
		case m.Exited:
			help(func() { h.drain(ctx, out) })
		case m.Done != nil:
			h.close() // a shim that ends does not wait for the engine
			<-carried
			tell(stdout, m.Done.Stdout)
			tell(stderr, m.Done.Stderr)
			_, _ = h.status.Write(m.Done.Status) // fails when nobody wants it
			return
		}
	}
}

// carry passes on what the engine sends.
func (h *handed) carry(out *enginestream.Output) {
	<-h.arrived
	if h.engine == nil {
		return
	}
	err := out.Copy(io.MultiReader(bytes.NewReader(h.read), h.engine))
	end := &handover.End{Held: out.Take()}
	if err != nil && !h.drained.Load() {
		end.Error = err.Error()
	}
	_ = h.control.Send(handover.FromClient{Ended: end}) // as above
}

func tell(to io.Writer, text []byte) {
	if to != nil && len(text) > 0 {
		_, _ = to.Write(text) // the writer tells of its failure
	}
}

// drain ends the connection of a process that has ended when nothing comes any
// more: whatever it has left behind may hold its output open.
func (h *handed) drain(ctx context.Context, out *enginestream.Output) {
	select {
	case <-out.Quiet(ctx, drainTime):
		h.drained.Store(true)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.engine != nil {
			_ = h.engine.Close() // carry has an error then, and says that it is the end
		}
	case <-ctx.Done():
	}
}

// arrive takes the connection that has come.
func (h *handed) arrive(read []byte) {
	conn, err := h.control.Taken()
	if err != nil {
		h.close()
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		_ = conn.Close()
		return
	}
	h.engine, h.read = conn, read
	h.over = true
	close(h.arrived)
}

// close ends both connections, in whatever state.
func (h *handed) close() {
	_ = h.control.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.engine != nil {
		_ = h.engine.Close()
	}
	if !h.over {
		h.over = true
		close(h.arrived)
	}
}

// handedInput is the process's stdin.
type handedInput struct{ h *handed }

func (in handedInput) Write(p []byte) (int, error) {
	<-in.h.arrived
	if in.h.engine == nil {
		return 0, errTunnelLost
	}
	return in.h.engine.Write(p)
}

// Close ends the input, which the process gets to see.
func (in handedInput) Close() error {
	<-in.h.arrived
	if half, ok := in.h.engine.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// handedSize takes sizes as channels.setSize writes them.
type handedSize struct{ control *handover.Conn }

func (z handedSize) Write(p []byte) (int, error) {
	var s handover.Size
	if err := json.Unmarshal(p, &s); err != nil {
		return 0, err
	}
	return len(p), z.control.Send(handover.FromClient{Size: &s})
}
