package stream

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/crishim/crishim/internal/handover"
	"github.com/crishim/crishim/internal/inproc"
	"github.com/crishim/crishim/internal/testbuffer"
)

// fakeShim hands connections over. Its engine's side of each is the test's.
type fakeShim struct {
	socket string
	asked  atomic.Int32
}

// serve has run tell the client what a shim would. To give away: conn; engine is
// the other end.
func (f *fakeShim) serve(t *testing.T, run func(shim *handover.Conn, conn, engine *net.UnixConn)) *fakeShim {
	t.Helper()
	return f.answer(t, func(w http.ResponseWriter, _ *http.Request) {
		hijacked, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer hijacked.Close()
		_, _ = io.WriteString(hijacked, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+handover.Protocol+"\r\n\r\n")
		conn, engine, err := inproc.Pair()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		defer engine.Close()
		run(handover.NewShim(hijacked.(*net.UnixConn), buffered.Reader), conn, engine)
	})
}

func (f *fakeShim) answer(t *testing.T, h http.HandlerFunc) *fakeShim {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	f.socket = l.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked.Add(1)
		h(w, r)
	})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return f
}

func (f *fakeShim) options() Options { return Options{Handover: func() string { return f.socket }} }

// record is how an engine sends text of one output: 1 or 2.
func record(output byte, text string) []byte {
	head := make([]byte, 8, 8+len(text))
	head[0] = output
	binary.BigEndian.PutUint32(head[4:], uint32(len(text)))
	return append(head, text...)
}

// hear reads what the client says until it says that the stream has ended.
func hear(t *testing.T, shim *handover.Conn) *handover.End {
	t.Helper()
	for {
		var m handover.FromClient
		if err := shim.Receive(&m); err != nil {
			t.Error("the client went without saying that the stream has ended:", err)
			return &handover.End{}
		}
		if m.Ended != nil {
			return m.Ended
		}
	}
}

func send(t *testing.T, shim *handover.Conn, m handover.FromShim) {
	t.Helper()
	if err := shim.Send(m); err != nil {
		t.Error(err)
	}
}

func give(t *testing.T, shim *handover.Conn, conn *net.UnixConn, read ...byte) {
	t.Helper()
	if err := shim.SendConn(handover.FromShim{Engine: &handover.Engine{Read: read}}, conn); err != nil {
		t.Error(err)
	}
	_ = conn.Close() // the client has its own
}

func done(status string) handover.FromShim {
	return handover.FromShim{Done: &handover.Done{Status: []byte(status)}}
}

const (
	statusGood  = `{"status":"Success"}`
	statusThree = `{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`
)

// nowhere is a URL of which only the handover works.
const nowhere = "http://127.0.0.1:1/exec/token"

func TestHandover(t *testing.T) {
	t.Parallel()
	first := record(1, "said ")
	f := new(fakeShim).serve(t, func(shim *handover.Conn, conn, engine *net.UnixConn) {
		give(t, shim, conn, first[:10]...)
		_, _ = engine.Write(first[10:])
		var m handover.FromClient
		if err := shim.Receive(&m); err != nil || !m.Spoken {
			t.Errorf("got %+v, %v, want word of the first output", m, err)
		}
		send(t, shim, handover.FromShim{Started: true})
		got, err := io.ReadAll(engine)
		if err != nil {
			t.Error(err)
		}
		_, _ = engine.Write(append(record(1, string(got)), record(2, "warned")...))
		_ = engine.Close()
		end := hear(t, shim)
		if end.Error != "" {
			t.Errorf("the stream ended with %+v", end)
		}
		last := done(statusThree)
		last.Done.Stdout = end.Held // where the stream was faster than word of the start
		send(t, shim, last)
	})
	var out, errs bytes.Buffer
	err := within(t, "the session", func() error {
		return Exec(t.Context(), nowhere, Streams{In: strings.NewReader("typed"), Out: &out, Err: &errs}, f.options())
	})
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 3 || out.String() != "said typed" || errs.String() != "warned" {
		t.Errorf("got %v, %q and %q", err, &out, &errs)
	}
}

// What comes before the process is known to run is the shim's to judge.
func TestHandoverHoldsBackWhyNothingStarted(t *testing.T) {
	t.Parallel()
	f := new(fakeShim).serve(t, func(shim *handover.Conn, conn, engine *net.UnixConn) {
		give(t, shim, conn)
		_, _ = engine.Write(record(1, "OCI runtime: no"))
		_ = engine.Close()
		if end := hear(t, shim); string(end.Held) != "OCI runtime: no" {
			t.Errorf("the client held %q", end.Held)
		}
		send(t, shim, handover.FromShim{Done: &handover.Done{Stderr: []byte("crishim: no\n"), Status: []byte(statusThree)}})
	})
	var out, errs bytes.Buffer
	err := within(t, "the session", func() error {
		return Exec(t.Context(), nowhere, Streams{Out: &out, Err: &errs}, f.options())
	})
	if err == nil || out.Len() > 0 || errs.String() != "crishim: no\n" {
		t.Errorf("got %v, %q and %q", err, &out, &errs)
	}
}

func TestHandoverThatComesToNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run  func(shim *handover.Conn, conn, engine *net.UnixConn)
		want func(error) bool
	}{
		"refused by the engine": {
			func(shim *handover.Conn, _, _ *net.UnixConn) {
				send(t, shim, done(`{"status":"Failure","message":"not running"}`))
			},
			func(err error) bool { return err != nil && err.Error() == "not running" },
		},
		"the shim dies first": {
			func(*handover.Conn, *net.UnixConn, *net.UnixConn) {},
			func(err error) bool { return errors.Is(err, ErrNoStatus) },
		},
		"the shim dies in the middle": {
			func(shim *handover.Conn, conn, _ *net.UnixConn) {
				give(t, shim, conn)
				send(t, shim, handover.FromShim{Started: true})
			},
			func(err error) bool { return errors.Is(err, ErrNoStatus) },
		},
		"the shim is stopped": {
			func(shim *handover.Conn, conn, engine *net.UnixConn) {
				give(t, shim, conn)
				send(t, shim, done(`{"status":"Failure","message":"stopping"}`))
				_, _ = io.Copy(io.Discard, engine) // open until the client closes it
			},
			func(err error) bool { return err != nil && err.Error() == "stopping" },
		},
		"no connection with the message": {
			func(shim *handover.Conn, _, _ *net.UnixConn) {
				send(t, shim, handover.FromShim{Engine: &handover.Engine{}})
				_ = shim.Receive(new(handover.FromClient)) // until the client leaves
			},
			func(err error) bool { return errors.Is(err, ErrNoStatus) },
		},
		"nonsense": {
			func(shim *handover.Conn, _, _ *net.UnixConn) { _ = shim.Send("what?") },
			func(err error) bool { return errors.Is(err, ErrNoStatus) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := new(fakeShim).serve(t, c.run)
			in, typing := io.Pipe()
			defer typing.Close()
			err := within(t, "the session", func() error {
				return Exec(t.Context(), nowhere, Streams{In: in, Out: io.Discard, Err: io.Discard}, f.options())
			})
			if !c.want(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What a dead process has left behind may hold its output open.
func TestHandoverWithAnOpenEnd(t *testing.T) {
	t.Parallel()
	f := new(fakeShim).serve(t, func(shim *handover.Conn, conn, engine *net.UnixConn) {
		give(t, shim, conn)
		send(t, shim, handover.FromShim{Started: true})
		_, _ = engine.Write(record(1, "all"))
		send(t, shim, handover.FromShim{Exited: true})
		if end := hear(t, shim); end.Error != "" {
			t.Errorf("the stream ended with %+v", end)
		}
		send(t, shim, done(statusGood))
	})
	var out bytes.Buffer
	err := within(t, "the session", func() error { return Exec(t.Context(), nowhere, Streams{Out: &out}, f.options()) })
	if err != nil || out.String() != "all" {
		t.Errorf("got %v, %q", err, &out)
	}
}

func TestHandoverReaderGone(t *testing.T) {
	t.Parallel()
	f := new(fakeShim).serve(t, func(shim *handover.Conn, conn, engine *net.UnixConn) {
		give(t, shim, conn)
		send(t, shim, handover.FromShim{Started: true})
		for { // as yes does
			if _, err := engine.Write(record(1, strings.Repeat("y\n", 1000))); err != nil {
				return
			}
		}
	})
	err := within(t, "the session", func() error {
		return Exec(t.Context(), nowhere, Streams{Out: writerFunc(func([]byte) (int, error) { return 0, syscall.EPIPE })}, f.options())
	})
	var sig *SignalError
	if !errors.As(err, &sig) || sig.Signal != syscall.SIGPIPE {
		t.Errorf("got %v", err)
	}
}

func TestHandoverEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := new(fakeShim).serve(t, func(shim *handover.Conn, conn, engine *net.UnixConn) {
		give(t, shim, conn)
		send(t, shim, handover.FromShim{Started: true})
		_, _ = engine.Write(record(1, "begun"))
		_, _ = io.Copy(io.Discard, engine) // ends when the client has closed its end
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	boom := errBoom
	err := within(t, "the session", func() error {
		return Exec(ctx, nowhere, Streams{Out: writerFunc(func(b []byte) (int, error) {
			cancel(boom)
			return len(b), nil
		})}, f.options())
	})
	if !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
}

// A socket that cannot be used leaves the URL good for the next protocol.
func TestHandoverFallsBack(t *testing.T) {
	t.Parallel()
	c := (&container{run: func(p process) error {
		_, err := io.WriteString(p.Out, "over SPDY")
		return err
	}}).start(t)
	refusing := new(fakeShim).answer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotImplemented) })
	file := filepath.Join(t.TempDir(), "engine.sock")
	l, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // nobody answers
	for name, o := range map[string]Options{
		"a file":         {Handover: func() string { return file }},
		"nobody listens": {Handover: func() string { return "@crishim-test-nobody" }},
		"refused":        refusing.options(),
		"not offered":    {Handover: func() string { return "" }},
		"not wanted":     {Handover: func() string { t.Error("it was asked for"); return "" }, Transport: TransportSPDY},
	} {
		t.Run(name, func(t *testing.T) {
			var out testbuffer.Buffer
			s := Streams{Out: &out, Err: io.Discard}
			if err := Exec(t.Context(), c.execURL(t, s), s, o); err != nil || out.String() != "over SPDY" {
				t.Errorf("got %v, %q", err, out.String())
			}
		})
	}
	if n := refusing.asked.Load(); n != 1 {
		t.Errorf("the refusing shim was asked %d times", n)
	}
}

// A token that was used up is not tried again with another protocol.
func TestHandoverOfAnUnknownURL(t *testing.T) {
	t.Parallel()
	f := new(fakeShim).answer(t, http.NotFound)
	err := Exec(t.Context(), nowhere, Streams{Out: io.Discard}, f.options())
	var refused *UpgradeError
	if !errors.As(err, &refused) || refused.Code != http.StatusNotFound {
		t.Errorf("got %v", err)
	}
}

// Sizes go to the shim, the first one before anything else.
func TestHandoverTerminalSize(t *testing.T) {
	t.Parallel()
	sizes := make(chan handover.Size, 2)
	f := new(fakeShim).serve(t, func(shim *handover.Conn, conn, engine *net.UnixConn) {
		give(t, shim, conn)
		send(t, shim, handover.FromShim{Started: true})
		for range 2 {
			var m handover.FromClient
			if err := shim.Receive(&m); err != nil || m.Size == nil {
				t.Errorf("got %+v, %v, want a size", m, err)
				return
			}
			sizes <- *m.Size
		}
		_ = engine.Close()
		hear(t, shim)
		send(t, shim, done(statusGood))
	})
	ch, err := openHandover(t.Context(), &url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/exec/token"}, f.socket, Streams{TTY: true, Out: io.Discard}, size{80, 24})
	if err != nil {
		t.Fatal(err)
	}
	defer ch.close()
	if err := ch.setSize(size{100, 40}); err != nil {
		t.Error(err)
	}
	go func() { _, _ = io.ReadAll(ch.status) }()
	_ = within(t, "the session", func() error { ch.outputs(io.Discard, nil, func() {}); return nil })
	for _, want := range []handover.Size{{Width: 80, Height: 24}, {Width: 100, Height: 40}} {
		select {
		case got := <-sizes:
			if got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		case <-time.After(patience):
			t.Fatal("a size is missing")
		}
	}
}
