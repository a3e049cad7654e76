package stream

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/moby/spdystream"
	spdyframe "github.com/moby/spdystream/spdy"
	"go.uber.org/goleak"
	"k8s.io/cri-streaming/pkg/streaming/portforward"

	"github.com/crishim/crishim/shim/state"
)

// deaf is a connection whose writes fail.
type deaf struct{ net.Conn }

func (deaf) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func openStreams(t *testing.T, w io.Writer, headers ...http.Header) {
	t.Helper()
	framer, err := spdyframe.NewFramer(w, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range headers {
		if err := framer.WriteFrame(&spdyframe.SynStreamFrame{StreamId: spdyframe.StreamId(1 + 2*i), Headers: h}); err != nil {
			t.Fatal(err)
		}
	}
}

// A stream whose reply could not be sent is not used.
func TestStreamOfAClientThatIsGone(t *testing.T) {
	f := &forwarder{server: New(Options{}, nil), pairs: map[string]*pair{}}
	ours, theirs := net.Pipe()
	conn := serveSPDY(deaf{ours}, ours, f.accept)
	openStreams(t, theirs, http.Header{portforward.StreamType: {portforward.StreamTypeData}})
	theirs.Close()
	<-conn.CloseChan()
	if len(f.pairs) > 0 {
		t.Errorf("got %d pairs", len(f.pairs))
	}
}

// Clients that open their streams and leave at once leak nothing.
func TestClientsThatLeaveAtOnce(t *testing.T) {
	const clients = 100
	before := goleak.IgnoreCurrent()
	pods, containers := New(Options{}, oneContainer{kind: state.TypeSandbox}), New(Options{}, helloEngine{oneContainer{kind: state.TypeContainer}})
	if err := errors.Join(pods.Start(t.Context()), containers.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	leave := func(i int, conn net.Conn) {
		if i%2 == 0 {
			_ = conn.(*net.TCPConn).SetLinger(0) // discards data that the server sends
		}
		conn.Close()
	}
	for i := range clients {
		var headers []http.Header
		for _, kind := range []string{portforward.StreamTypeError, portforward.StreamTypeData} {
			headers = append(headers, http.Header{portforward.PortHeader: {"80"}, portforward.PortForwardRequestIDHeader: {"1"}, portforward.StreamType: {kind}})
		}
		leave(i, pods.forward(t, headers...))
		types := []string{"error", "stdout"}
		leave(i, dialSession(t, containers.mustExecURL(t), types[:1+i%4/2]...))
	}
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(pods.Close(), containers.Close()) }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the server does not close")
	}
	goleak.VerifyNone(t, before)
}

// Streams without request ids are paired by stream id in any order. Unmatched streams are rejected.
func TestStreamsWithoutRequestIDs(t *testing.T) {
	f := &forwarder{server: New(Options{}, nil), pod: &pod{}, pairs: map[string]*pair{}}
	ours, theirs := net.Pipe()
	opened := make(chan *spdystream.Stream, 5)
	conn := serveSPDY(ours, ours, func(s *spdystream.Stream) bool {
		opened <- s
		return true
	})
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	var headers []http.Header
	for _, kind := range []string{portforward.StreamTypeError, portforward.StreamTypeData, portforward.StreamTypeError, portforward.StreamTypeData, "nonsense"} {
		headers = append(headers, http.Header{portforward.StreamType: {kind}})
	}
	openStreams(t, theirs, headers...)
	streams := map[uint32]*spdystream.Stream{}
	for range headers {
		s := <-opened
		streams[s.Identifier()] = s
	}
	for _, step := range []struct {
		stream     uint32
		incomplete int
		refused    bool
	}{{1, 1, false}, {5, 2, false}, {3, 1, false}, {9, 1, true}, {5, 1, true}, {7, 0, false}} {
		if accepted := f.accept(streams[step.stream]); accepted == step.refused || len(f.pairs) != step.incomplete {
			t.Errorf("stream %d: got %v and %d pairs, want %+v", step.stream, accepted, len(f.pairs), step)
		}
	}
	f.served.Wait() // the dial fails
	theirs.Close()
	<-conn.CloseChan()
}

func upgradeRequest(u *url.URL, protocol string) string {
	return "POST " + u.Path + " HTTP/1.1\r\nHost: " + u.Host +
		"\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: " + protocol + "\r\n\r\n"
}
