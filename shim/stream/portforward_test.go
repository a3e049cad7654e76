package stream

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	frames "github.com/moby/spdystream/spdy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/crishim/crishim/shim/state"
)

// deaf is a connection that cannot be written to any more.
type deaf struct{ net.Conn }

func (deaf) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// openStreams writes what a client writes to open streams with these headers.
func openStreams(t *testing.T, w io.Writer, headers ...http.Header) {
	t.Helper()
	framer, err := frames.NewFramer(w, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range headers {
		if err := framer.WriteFrame(&frames.SynStreamFrame{StreamId: frames.StreamId(1 + 2*i), Headers: h}); err != nil {
			t.Fatal(err)
		}
	}
}

// A stream whose answer could not be sent is not used, and does not hold up the
// connection.
func TestStreamOfAClientThatIsGone(t *testing.T) {
	f := &forwarder{server: New(Options{}, nil), pairs: map[string]*pair{}}
	ours, theirs := net.Pipe()
	handled := make(chan httpstream.Stream)
	conn, err := spdy.NewServerConnection(deaf{ours}, func(s httpstream.Stream, known <-chan struct{}) error {
		err := f.accept(s, known)
		handled <- s
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	openStreams(t, theirs, http.Header{portforward.StreamType: {portforward.StreamTypeData}})
	stream := <-handled
	if len(f.pairs) > 0 {
		t.Error("a stream without an answer is used")
	}
	written := make(chan error, 1)
	go func() { _, err := stream.Write([]byte("x")); written <- err }()
	select {
	case err := <-written:
		if err == nil {
			t.Error("the write succeeded")
		}
	case <-time.After(patience):
		t.Error("the write waits for ever")
	}
	theirs.Close()
	<-conn.CloseChan()
	ours.Close()
}

// Clients that open their streams and leave at once keep nothing from ending.
func TestClientsThatLeaveAtOnce(t *testing.T) {
	const clients = 100
	s := New(Options{}, oneContainer{kind: state.TypeSandbox})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range clients {
		answer, err := s.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: "known"})
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(answer.GetUrl())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, upgradeRequest(u, portforward.ProtocolV1Name)); err != nil {
			t.Fatal(err)
		}
		var headers []http.Header
		for _, kind := range []string{portforward.StreamTypeError, portforward.StreamTypeData} {
			headers = append(headers, http.Header{portforward.PortHeader: {"80"}, portforward.PortForwardRequestIDHeader: {"1"}, portforward.StreamType: {kind}})
		}
		openStreams(t, conn, headers...)
		if i%2 == 0 {
			_ = conn.(*net.TCPConn).SetLinger(0) // what the server sends gets lost then
		}
		conn.Close()
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the server does not close")
	}
}

// upgradeRequest asks for SPDY.
func upgradeRequest(u *url.URL, protocol string) string {
	return "POST " + u.Path + " HTTP/1.1\r\nHost: " + u.Host +
		"\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: " + protocol + "\r\n\r\n"
}
