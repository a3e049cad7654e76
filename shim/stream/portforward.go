package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/spdystream"
	"golang.org/x/net/websocket"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/crishim/crishim/internal/frames"
	"github.com/crishim/crishim/shim/state"
)

// dropInterval is the interval at which a data stream whose input has ended is checked for a reset by the client. SPDY
// reports both as EOF.
const dropInterval = 100 * time.Millisecond

func (s *Server) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	for _, port := range r.GetPort() {
		if port < 1 || port > 65535 {
			return nil, fmt.Errorf("port %d is not between 1 and 65535: %w", port, errdefs.ErrInvalidArgument)
		}
	}
	if _, err := s.running(ctx, r.GetPodSandboxId(), state.TypeSandbox); err != nil {
		return nil, err
	}
	url, err := s.url(ctx, "portforward", func(w http.ResponseWriter, q *http.Request) { s.servePortForward(w, q, r.GetPodSandboxId()) })
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PortForwardResponse{Url: url}, nil
}

func (s *Server) servePortForward(w http.ResponseWriter, r *http.Request, id string) {
	pod, err := s.pod(r.Context(), id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	f := &forwarder{server: s, ctx: r.Context(), pod: pod, dials: make(chan struct{}, maxClientDials), pairs: map[string]*pair{}}
	if !wsstream.IsWebSocketRequest(r) {
		if _, err := httpstream.Handshake(r, w, portforward.SupportedProtocols); err == nil {
			f.run(upgradeSPDY(w, r, f.accept), connOf(r).leave)
		}
		return
	}
	websocket.Server{ // binary messages carry a SPDY connection
		Handshake: func(c *websocket.Config, _ *http.Request) error {
			if !slices.Contains(c.Protocol, portforward.WebsocketsSPDYTunnelingPortForwardV1) {
				return websocket.ErrBadWebSocketProtocol
			}
			c.Protocol = []string{portforward.WebsocketsSPDYTunnelingPortForwardV1}
			return nil
		},
		Handler: func(ws *websocket.Conn) {
			ws.PayloadType = websocket.BinaryFrame
			f.run(serveSPDY(ws, ws, f.accept), connOf(r).leave)
		},
	}.ServeHTTP(w, r)
}

const (
	// maxForwarded limits the connections of a client. Each uses a descriptor and two buffers.
	maxForwarded = 1000
	// maxDials limits concurrent dials. Each occupies a thread in the pod's network namespace, and a Go program is
	// killed at 10,000 threads.
	maxDials, maxClientDials = 256, 32
)

type forwarder struct {
	server *Server
	ctx    context.Context // ends with the client
	pod    *pod
	dials  chan struct{}  // semaphore of concurrent dials
	served sync.WaitGroup // complete pairs

	mu    sync.Mutex
	count int              // number of pairs
	pairs map[string]*pair // incomplete pairs; nil when the session is over
}

type pair struct {
	streams map[string]*spdystream.Stream // by the type in the stream's header
	timer   *time.Timer
}

func (f *forwarder) run(conn *spdystream.Connection, leave func(error)) {
	if conn == nil { // the client has got a response or is gone
		return
	}
	go f.pod.watch(f.ctx, leave)
	select {
	case <-conn.CloseChan():
		leave(errClientGone)
	case <-f.ctx.Done():
	}
	f.mu.Lock()
	incomplete := f.pairs
	f.pairs = nil
	f.mu.Unlock()
	for _, p := range incomplete {
		p.timer.Stop()
		f.end(p, context.Cause(f.ctx))
	}
	f.served.Wait()
	_ = conn.Close()
}

func (f *forwarder) accept(stream *spdystream.Stream) bool {
	kind, id := stream.Headers().Get(portforward.StreamType), stream.Headers().Get(portforward.PortForwardRequestIDHeader)
	if id == "" { // old clients send no ids; they open the data stream after its error stream
		first := stream.Identifier()
		if kind == portforward.StreamTypeData {
			first -= 2
		}
		id = fmt.Sprint("stream ", first)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pairs[id]
	switch {
	case f.pairs == nil, kind != portforward.StreamTypeData && kind != portforward.StreamTypeError, p != nil && p.streams[kind] != nil, p == nil && f.count == maxForwarded:
		return false
	case p == nil:
		p = &pair{streams: map[string]*spdystream.Stream{}}
		p.timer = time.AfterFunc(f.server.opts.CreationTimeout, func() { f.expire(id, p) })
		f.pairs[id] = p
		f.count++
	}
	p.streams[kind] = stream
	if len(p.streams) == 2 {
		p.timer.Stop()
		delete(f.pairs, id)
		f.served.Go(func() { f.serve(p) })
	}
	return true
}

func (f *forwarder) expire(id string, p *pair) {
	f.mu.Lock()
	late := f.pairs[id] == p
	if late {
		delete(f.pairs, id)
	}
	f.mu.Unlock()
	if late {
		f.end(p, errors.New("the client did not open its streams in time"))
	}
}

// serve carries both directions. An error is reported on the pair's error stream and does not affect other pairs.
func (f *forwarder) serve(p *pair) {
	data := p.streams[portforward.StreamTypeData]
	text := data.Headers().Get(portforward.PortHeader)
	port, err := strconv.ParseUint(text, 10, 16)
	var target net.Conn
	if err != nil || port == 0 {
		err = fmt.Errorf("port %q is not between 1 and 65535", text)
	} else if target, err = f.dial(uint16(port)); err == nil {
		err = relay(f.ctx, data, target)
	}
	if err != nil {
		err = fmt.Errorf("error forwarding port %s to pod %s: %w", text, f.pod.id, err)
		f.server.opts.Log.Debug("port forward", "error", err)
	}
	f.end(p, err)
}

func (f *forwarder) dial(port uint16) (net.Conn, error) {
	for _, slots := range []chan struct{}{f.dials, f.server.dials} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-f.ctx.Done():
			return nil, context.Cause(f.ctx)
		}
	}
	return f.pod.dial(f.ctx, port)
}

// end reports the result of a connection to the client. It resets the streams, because unread data would block the
// others.
func (f *forwarder) end(p *pair, err error) {
	if errs := p.streams[portforward.StreamTypeError]; errs != nil && err != nil {
		_, _ = io.WriteString(errs, err.Error()) // the client may be gone
	}
	for kind, s := range p.streams {
		if err == nil || kind == portforward.StreamTypeError {
			_ = s.Close()
		}
		_ = s.Reset()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count--
}

// relay carries both directions until both have ended, and closes the connection.
func relay(ctx context.Context, data io.ReadWriteCloser, target net.Conn) error {
	defer target.Close()
	sent, received := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(sent)
		if frames.Copy(target, data) != nil {
			// The pod accepts no more input. Its remaining output decides the result.
			_, _ = io.Copy(io.Discard, data)
			return
		}
		_ = target.(*net.TCPConn).CloseWrite() // fails if the pod has closed the connection
	}()
	go func() {
		err := frames.Copy(data, target)
		if err == nil {
			_ = data.Close() // fails if the client has reset the stream
		}
		received <- err
	}()
	var dropped <-chan time.Time
	for up, down := true, true; up || down; {
		select {
		case <-sent:
			up, sent = false, nil
			tick := time.NewTicker(dropInterval)
			defer tick.Stop()
			dropped = tick.C
		case <-dropped: // a finished stream: the client has reset it, or the pod has sent all its data
			if s, ok := data.(interface{ IsFinished() bool }); ok && down && s.IsFinished() {
				return nil
			}
		case err := <-received:
			if err != nil && ctx.Err() == nil {
				return err
			}
			down = false
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}
