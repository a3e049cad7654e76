package stream

import (
	"context"
	"net/http"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Remote command protocols. Version 2 mended bugs of the first, version 3 added
// the resize stream, version 4 the exit status, version 5 (WebSocket only) the
// end of stdin.
const (
	protocolV1 = "channel.k8s.io"
	protocolV2 = "v2.channel.k8s.io"
	protocolV3 = "v3.channel.k8s.io"
	protocolV4 = "v4.channel.k8s.io"
	protocolV5 = "v5.channel.k8s.io"
)

// Names of streams in the streamType header.
const (
	headerStreamType = "streamType"
	streamStdin      = "stdin"
	streamStdout     = "stdout"
	streamStderr     = "stderr"
	streamError      = "error"
	streamResize     = "resize"
	streamData       = "data"
)

// openSPDY waits until the client has opened every stream it must have.
func (s *Server) openSPDY(w http.ResponseWriter, r *http.Request, want wanted) (*session, error) {
	protocol, err := httpstream.Handshake(r, w, []string{protocolV4, protocolV3, protocolV2, protocolV1})
	if err != nil {
		return nil, err
	}
	conn, arrivals := s.upgradeSPDY(w, r)
	if conn == nil {
		return nil, errNoStreams
	}
	withSize := protocol == protocolV3 || protocol == protocolV4
	streams, err := s.collect(r.Context(), arrivals, names(want, withSize))
	if err != nil {
		conn.Close()
		return nil, err
	}
	return spdySession(r.Context(), conn, streams, protocol == protocolV4), nil
}

// arrival is a stream that the client opened and that was answered; known is
// closed when the connection has it in its books, from which it can be removed.
type arrival struct {
	httpstream.Stream
	known <-chan struct{}
}

// upgradeSPDY answers the request and returns the connection, or nil when the
// client has got an error instead. Streams are reset once the request is over.
func (s *Server) upgradeSPDY(w http.ResponseWriter, r *http.Request) (httpstream.Connection, <-chan arrival) {
	arrivals := make(chan arrival)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, acceptInto(r.Context(), arrivals))
	if conn != nil {
		conn.SetIdleTimeout(s.opts.IdleTimeout)
	}
	return conn, arrivals
}

// acceptInto never refuses a stream by returning an error: the library would
// write to the program's stderr.
func acceptInto(ctx context.Context, arrivals chan<- arrival) httpstream.NewStreamHandler {
	return func(stream httpstream.Stream, known <-chan struct{}) error {
		if !answer(stream) {
			return nil
		}
		select {
		case arrivals <- arrival{Stream: stream, known: known}:
		case <-ctx.Done():
			_ = stream.Reset()
		}
		return nil
	}
}

// answer accepts a stream. The library would do it a moment later, but it keeps
// to itself when that failed, because the client is gone: a write to a stream
// without an answer waits for ever, and everything here with it.
func answer(stream httpstream.Stream) bool {
	s, ok := stream.(interface {
		SendReply(headers http.Header, fin bool) error
		Refuse() error
	})
	if !ok || s.SendReply(http.Header{}, false) == nil {
		return true
	}
	_ = s.Refuse() // it counts as answered now, whether the client hears of it or not
	_ = stream.Reset()
	return false
}

// names lists the streams that a client opens.
func names(want wanted, withSize bool) map[string]bool {
	return map[string]bool{
		streamError:  true,
		streamStdin:  want.stdin,
		streamStdout: want.stdout,
		streamStderr: want.stderr,
		streamResize: want.tty && withSize,
	}
}

// collect takes arrivals until every expected stream is there.
// Streams that nobody expects are reset.
func (s *Server) collect(ctx context.Context, arrivals <-chan arrival, expected map[string]bool) (map[string]httpstream.Stream, error) {
	timer := time.NewTimer(s.opts.CreationTimeout)
	defer timer.Stop()
	missing := 0
	for _, is := range expected {
		if is {
			missing++
		}
	}
	streams := map[string]httpstream.Stream{}
	var known []<-chan struct{}
	for missing > 0 {
		select {
		case a := <-arrivals:
			name := a.Headers().Get(headerStreamType)
			if !expected[name] || streams[name] != nil {
				_ = a.Reset()
				continue
			}
			streams[name] = a.Stream
			known = append(known, a.known)
			missing--
		case <-timer.C:
			return nil, errNoStreams
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	for _, is := range known {
		select {
		case <-is:
		case <-timer.C:
			return nil, errNoStreams
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return streams, nil
}

func spdySession(ctx context.Context, conn httpstream.Connection, streams map[string]httpstream.Stream, asJSON bool) *session {
	out := &session{}
	if in := streams[streamStdin]; in != nil {
		out.stdin = in
	}
	if w := streams[streamStdout]; w != nil {
		out.stdout = w
	}
	if w := streams[streamStderr]; w != nil {
		out.stderr = w
	}
	if size := streams[streamResize]; size != nil {
		out.resize = resizes(ctx, size)
	}
	out.finish = func(outcome error) {
		// The client may be gone; then there is nobody to tell.
		_ = writeOutcome(streams[streamError], asJSON, outcome)
		for name, stream := range streams {
			if name == streamStdin {
				_ = stream.Reset() // ends the copier that may wait for input
				continue
			}
			_ = stream.Close()
		}
		_ = conn.Close()
	}
	return out
}
