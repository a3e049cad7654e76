package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/internal/test"
)

var transports = []string{transportSPDY, transportWebSocket}

// eachTransport runs a test over SPDY and WebSocket.
func eachTransport(t *testing.T, f func(t *testing.T, o Options)) {
	for _, tr := range transports {
		t.Run(tr, func(t *testing.T) { f(t, Options{Transport: tr}) })
	}
}

func TestExecStatus(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"success", nil, ""},
		{"one", exit(1), "command ended with status 1"},
		{"killed", exit(137), "command ended with status 137"},
		{"largest", exit(255), "command ended with status 255"},
		{"larger than a status can be", exit(3000), "command ended with status 255"},
		{"did not run", errBoom, "boom"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachTransport(t, func(t *testing.T, o Options) {
				c := (&container{run: func(process) error { return tt.err }}).start(t)
				s := Streams{Out: io.Discard, Err: io.Discard}
				err := within(t, "exec", func() error { return Run(t.Context(), c.execURL(t, s), s, o) })
				if (err == nil) != (tt.want == "") || err != nil && !strings.HasSuffix(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			})
		})
	}
}

func TestExecKeepsStreamsApart(t *testing.T) {
	eachTransport(t, func(t *testing.T, o Options) {
		c := (&container{run: func(p process) error {
			fmt.Fprint(p.Out, "to stdout\r\n\x00\xff")
			fmt.Fprint(p.Err, "to stderr")
			return exit(3)
		}}).start(t)
		var out, errs bytes.Buffer
		s := Streams{Out: &out, Err: &errs}
		err := within(t, "exec", func() error { return Run(t.Context(), c.execURL(t, s), s, o) })
		var code *ExitError
		if !errors.As(err, &code) || code.Code != 3 {
			t.Errorf("got error %v, want status 3", err)
		}
		if out.String() != "to stdout\r\n\x00\xff" || errs.String() != "to stderr" {
			t.Errorf("got stdout %q, stderr %q", out.String(), errs.String())
		}
	})
}

func TestExecHalfClose(t *testing.T) {
	data := make([]byte, 5<<20)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(data)
	file := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	inputs := map[string]func(t *testing.T) io.Reader{
		"reader": func(*testing.T) io.Reader { return bytes.NewReader(data) },
		"file":   func(t *testing.T) io.Reader { return open(t, file) },
		"pipe":   func(t *testing.T) io.Reader { return piped(t, data) },
	}
	for name, input := range inputs {
		t.Run(name, func(t *testing.T) {
			c := (&container{run: func(p process) error {
				_, err := io.Copy(p.Out, p.In) // ends only after a half-close
				return err
			}}).start(t)
			var out bytes.Buffer
			s := Streams{In: input(t), Out: &out}
			if err := within(t, "cat", func() error { return Run(t.Context(), c.execURL(t, s), s, Options{}) }); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out.Bytes(), data) {
				t.Errorf("got %d bytes that differ, want %d", out.Len(), len(data))
			}
		})
	}
}

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func piped(t *testing.T, data []byte) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	go func() {
		_, _ = w.Write(data)
		w.Close()
	}()
	return r
}

func TestExecDevNull(t *testing.T) {
	c := (&container{run: func(p process) error {
		n, err := io.Copy(p.Out, p.In)
		if n != 0 || err != nil {
			return errBoom
		}
		return nil
	}}).start(t)
	s := Streams{In: open(t, os.DevNull), Out: io.Discard}
	if err := within(t, "cat", func() error { return Run(t.Context(), c.execURL(t, s), s, Options{}) }); err != nil {
		t.Error(err)
	}
}

// Run returns when the command ends, although the input is still open. Later input remains for the next reader.
func TestExecReturnsWhileInputBlocks(t *testing.T) {
	eachTransport(t, func(t *testing.T, o Options) {
		c := (&container{run: func(process) error { return exit(4) }}).start(t)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		s := Streams{In: r, Out: io.Discard}
		err = within(t, "exec", func() error { return Run(t.Context(), c.execURL(t, s), s, o) })
		var code *ExitError
		if !errors.As(err, &code) || code.Code != 4 {
			t.Fatalf("got %v, want status 4", err)
		}
		if _, err := w.WriteString("next"); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(r, got); err != nil || string(got) != "next" {
			t.Errorf("got %q, %v: the session took input after its end", got, err)
		}
	})
}

func TestExecContextEnds(t *testing.T) {
	eachTransport(t, func(t *testing.T, o Options) {
		gone := make(chan struct{})
		c := (&container{run: func(p process) error {
			defer close(gone)
			fmt.Fprint(p.Out, "started")
			_, _ = io.Copy(io.Discard, p.In)
			return nil
		}}).start(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, w := io.Pipe()
		defer w.Close()
		s := Streams{In: r, Out: writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })}
		err := within(t, "exec", func() error { return Run(ctx, c.execURL(t, s), s, o) })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want canceled", err)
		}
		select {
		case <-gone:
		case <-time.After(patience):
			t.Error("the server did not notice")
		}
	})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// If the server dies, the status is unknown and the session fails.
func TestExecConnectionLost(t *testing.T) {
	eachTransport(t, func(t *testing.T, o Options) {
		hold := make(chan struct{})
		defer close(hold)
		c := (&container{run: func(p process) error {
			fmt.Fprint(p.Out, "started")
			<-hold
			return nil
		}}).start(t)
		var network *test.Proxy
		s := Streams{Out: writerFunc(func(p []byte) (int, error) { network.Cut(); return len(p), nil })}
		network, u := test.ProxyURL(t, c.execURL(t, s))
		err := within(t, "exec", func() error { return Run(t.Context(), u, s, o) })
		if !errors.Is(err, errNoStatus) {
			t.Errorf("got %v, want %v", err, errNoStatus)
		}
	})
}

func TestExecOutputCloses(t *testing.T) {
	c := (&container{run: func(p process) error {
		for {
			if _, err := p.Out.Write(make([]byte, 32<<10)); err != nil {
				return err
			}
		}
	}}).start(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	s := Streams{Out: w}
	err = within(t, "yes | head", func() error { return Run(t.Context(), c.execURL(t, s), s, Options{}) })
	var sig *SignalError
	if !errors.As(err, &sig) || sig.ExitCode() != 141 {
		t.Errorf("got %v, want a broken pipe", err)
	}
}

func TestExecURLIsGoodForOneUse(t *testing.T) {
	eachTransport(t, func(t *testing.T, o Options) {
		c := (&container{run: func(process) error { return nil }}).start(t)
		s := Streams{Out: io.Discard}
		u := c.execURL(t, s)
		for try, want := range []string{"", "already used"} {
			err := within(t, "exec", func() error { return Run(t.Context(), u, s, o) })
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("attempt %d: got %v, want %q", try, err, want)
			}
		}
	})
}

func TestAutoFallsBackToWebSocket(t *testing.T) {
	c := (&container{run: func(p process) error {
		fmt.Fprint(p.Out, "hello")
		return nil
	}}).start(t)
	c.http.Config.Handler = refuseSPDY(c.streams)
	var out bytes.Buffer
	s := Streams{Out: &out}
	fresh := 0
	o := Options{FreshURL: func(context.Context) (string, error) { fresh++; return c.execURL(t, s), nil }}
	if err := within(t, "exec", func() error { return Run(t.Context(), c.execURL(t, s), s, o) }); err != nil {
		t.Fatal(err)
	}
	if out.String() != "hello" || fresh != 1 {
		t.Errorf("got %q after %d fresh URLs", out.String(), fresh)
	}
}

func TestAttach(t *testing.T) {
	c := (&container{run: func(p process) error {
		_, err := io.Copy(p.Out, p.In)
		return err
	}}).start(t)
	var out bytes.Buffer
	s := Streams{In: strings.NewReader("hello"), Out: &out}
	if err := within(t, "attach", func() error { return Run(t.Context(), c.execURL(t, s), s, Options{}) }); err != nil {
		t.Fatal(err)
	}
	if out.String() != "hello" {
		t.Errorf("got %q", out.String())
	}
}

func TestOptionsAreCheckedFirst(t *testing.T) {
	for name, o := range map[string]Options{
		"transport":   {Transport: "pigeon"},
		"detach keys": {DetachKeys: "ctrl-"},
		"half a pair": {TLS: TLS{Cert: "c.pem"}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Run(t.Context(), "http://127.0.0.1:1/never/dialled", Streams{}, o); err == nil || strings.Contains(err.Error(), "dial") {
				t.Errorf("got %v", err)
			}
		})
	}
}
