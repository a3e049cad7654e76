package inproc

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/crishim/crishim/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// Both ways in reach the same listener, and each answers with what it is.
func TestDialFromInsideAndOutside(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := tcp.Addr().String()
	l := Listen(tcp)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, c.LocalAddr().Network())
			_ = c.Close()
		}
	}()
	inside, ok, err := Dial(address)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	outside, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]net.Conn{"unix": inside, "tcp": outside} {
		got, err := io.ReadAll(c)
		if err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		_ = c.Close()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed again: %v", err)
	}
	if _, ok, _ := Dial(address); ok {
		t.Error("a closed listener is still reached")
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept says %v", err)
	}
}

// A listener that closes lets go of who is about to come in.
func TestDialWhileItCloses(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := tcp.Addr().String()
	l := Listen(tcp)
	dialled := make(chan error, 1)
	go func() {
		_, _, err := Dial(address) // nobody accepts
		dialled <- err
	}()
	_ = l.Close()
	if err := <-dialled; err != nil && !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
