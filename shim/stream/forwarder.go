package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream"
)

const (
	headerPort      = "port"
	headerRequestID = "requestID"
)

// forwarder pairs the streams that a client opens, two for each connection it
// has accepted, and serves the pairs.
type forwarder struct {
	server *Server
	pod    *pod
	work   sync.WaitGroup // connections that are being served
	pairs  map[string]*pair
	late   chan *pair // pairs that are still not complete after the creation time
}

// pair is a data stream and the error stream beside it.
type pair struct {
	id          string
	data, error httpstream.Stream
	known       []<-chan struct{} // see arrival
	timer       *time.Timer
}

func newForwarder(s *Server, p *pod) *forwarder {
	return &forwarder{server: s, pod: p, pairs: map[string]*pair{}, late: make(chan *pair)}
}

// run serves pairs until the client's connection or ctx ends.
func (f *forwarder) run(ctx context.Context, conn httpstream.Connection, arrivals <-chan arrival) {
	defer func() {
		for _, p := range f.pairs {
			p.timer.Stop()
		}
	}()
	for {
		select {
		case a := <-arrivals:
			if p := f.place(ctx, a); p != nil {
				f.work.Add(1)
				go f.serve(ctx, conn, p)
			}
		case p := <-f.late:
			if f.pairs[p.id] == p {
				delete(f.pairs, p.id)
				p.abort(conn, errNoStreams)
			}
		case <-conn.CloseChan():
			return
		case <-ctx.Done():
			return
		}
	}
}

// place puts a stream with its other half and returns the pair when that makes
// it complete.
func (f *forwarder) place(ctx context.Context, a arrival) *pair {
	s := a.Stream
	id, kind := requestID(s), s.Headers().Get(headerStreamType)
	p := f.pairs[id]
	if p == nil {
		p = &pair{id: id}
		p.timer = time.AfterFunc(f.server.opts.CreationTimeout, func() {
			select {
			case f.late <- p:
			case <-ctx.Done():
			}
		})
		f.pairs[id] = p
	}
	switch {
	case kind == streamData && p.data == nil:
		p.data = s
	case kind == streamError && p.error == nil:
		p.error = s
	default:
		_ = s.Reset()
		return nil
	}
	p.known = append(p.known, a.known)
	if p.data == nil || p.error == nil {
		return nil
	}
	p.timer.Stop()
	delete(f.pairs, id)
	return p
}

// requestID names the pair of a stream. Clients from before there was such a
// header open the error stream first and the data stream right after it; ids of
// a client's streams are odd.
func requestID(s httpstream.Stream) string {
	if id := s.Headers().Get(headerRequestID); id != "" {
		return id
	}
	id := int64(s.Identifier())
	if s.Headers().Get(headerStreamType) == streamData {
		id -= 2
	}
	return "stream " + strconv.FormatInt(id, 10)
}

// serve connects to the pod and carries both directions. What goes wrong is
// written to this pair's error stream and concerns no other.
func (f *forwarder) serve(ctx context.Context, conn httpstream.Connection, p *pair) {
	defer f.work.Done()
	for _, known := range p.known {
		select {
		case <-known:
		case <-ctx.Done():
			return
		}
	}
	port := p.data.Headers().Get(headerPort)
	err := f.connect(ctx, p.data, port)
	if err != nil && !errors.Is(err, errClientGone) {
		f.server.opts.Log.Debug("port forward", "pod", f.pod.id, "port", port, "error", err)
		p.abort(conn, fmt.Errorf("error forwarding port %s to pod %s: %w", port, f.pod.id, err))
		return
	}
	_ = p.data.Close()
	_ = p.error.Close()
	p.release(conn)
}

func (f *forwarder) connect(ctx context.Context, data httpstream.Stream, text string) error {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return fmt.Errorf("port %q is not between 1 and 65535", text)
	}
	target, err := f.pod.dial(ctx, uint16(port))
	if err != nil {
		return err
	}
	return relay(ctx, data, target)
}

// abort tells the client the reason and ends both streams at once, so that
// nothing unread is left to hold up the others.
func (p *pair) abort(conn httpstream.Connection, reason error) {
	if p.error != nil {
		_, _ = io.WriteString(p.error, reason.Error())
		_ = p.error.Close()
	}
	p.release(conn)
}

// release forgets the streams, also what the client might still send on them.
func (p *pair) release(conn httpstream.Connection) {
	for _, s := range []httpstream.Stream{p.data, p.error} {
		if s != nil {
			_ = s.Reset()
			conn.RemoveStreams(s)
		}
	}
}
