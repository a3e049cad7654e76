package spdyframe

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// wholeConn is a connection below SPDY.
type wholeConn struct {
	net.Conn
	w *Writer
}

func (c wholeConn) Write(p []byte) (int, error) { return c.w.Write(p) }

// What goes past the library arrives between what goes through it, of two
// streams at once, with the end behind it.
func TestStreamsKeepTheirOrder(t *testing.T) {
	near, far := connected(t)
	arrived := make(chan httpstream.Stream, 2)
	server, err := spdy.NewServerConnection(far, func(s httpstream.Stream, _ <-chan struct{}) error {
		arrived <- s
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	w := NewWriter(near)
	client, err := spdy.NewClientConnection(wholeConn{near, w})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	sent, got := make(chan []byte, 2), make(chan []byte, 2)
	for i := range 2 {
		s, err := client.CreateStream(http.Header{})
		if err != nil {
			t.Fatal(err)
		}
		s = w.Stream(s)
		if _, ok := s.(*Stream); !ok {
			t.Fatalf("got a %T", s)
		}
		var all []byte
		for n := range 40 {
			all = append(all, bytes.Repeat([]byte{byte(i), byte(n)}, []int{1, vectored, vectored / 2, largest/2 + 1, 3}[n%5])...)
		}
		go func() {
			defer s.Close()
			for left, n := all, 0; len(left) > 0; n++ {
				p := left[:min(len(left), []int{1, vectored, largest, vectored - 1, largest + 1}[n%5])]
				if _, err := s.Write(p); err != nil {
					t.Error(err)
					return
				}
				left = left[len(p):]
			}
		}()
		sent <- all
		in := <-arrived
		go func() {
			b, err := io.ReadAll(in)
			if err != nil {
				t.Error(err)
			}
			got <- b
		}()
	}
	want := map[byte][]byte{}
	for range 2 {
		b := <-sent
		want[b[0]] = b
	}
	for range 2 {
		select {
		case b := <-got:
			if len(b) == 0 || !bytes.Equal(b, want[b[0]]) {
				t.Errorf("a stream of %d bytes came differently", len(b))
			}
		case <-time.After(time.Minute):
			t.Fatal("the streams did not end")
		}
	}
}

// Where the kernel cannot join pieces the library sends everything.
func TestStreamOfAnotherConnection(t *testing.T) {
	var s httpstream.Stream
	if got := NewWriter(io.Discard).Stream(s); got != s {
		t.Errorf("got a %T", got)
	}
}

// connected gives the two ends of a TCP connection.
func connected(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return near, far
}
