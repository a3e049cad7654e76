package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// TestExecReturnsWhileItsInputIsNotRead runs a command that reads only the head of its input. The status arrives while
// the client blocks in a write of the rest.
func TestExecReturnsWhileItsInputIsNotRead(t *testing.T) {
	for name, start := range map[string]func(t *testing.T, stuck func()) (string, Options){
		"the runtimes' server, SPDY": func(t *testing.T, stuck func()) (string, Options) {
			return headServer(t, stuck), Options{Transport: transportSPDY}
		},
		"the runtimes' server, WebSocket": func(t *testing.T, stuck func()) (string, Options) {
			return headServer(t, stuck), Options{Transport: transportWebSocket}
		},
		"the connection stays": func(t *testing.T, stuck func()) (string, Options) {
			return statusServer(t, stuck, true), Options{}
		},
		"the connection ends": func(t *testing.T, stuck func()) (string, Options) {
			return statusServer(t, stuck, false), Options{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, file := range []bool{false, true} {
				in := newFlood(t, file)
				url, o := start(t, in.stuck)
				var out bytes.Buffer
				s := Streams{In: in.Reader, Out: &out}
				err := within(t, "exec", func() error { return Run(t.Context(), url, s, o) })
				var exit *ExitError
				if !errors.As(err, &exit) || exit.Code != 3 || out.String() != "head" {
					t.Errorf("file %t: got %v and %q, want status 3 and the output", file, err, out.String())
				}
				if took := in.sinceStuck(); took > 800*time.Millisecond {
					t.Errorf("file %t: it returned %s after the status", file, took)
				}
			}
		})
	}
}

// headServer is the streaming server of real runtimes with a command like head.
func headServer(t *testing.T, stuck func()) string {
	c := (&container{run: func(p process) error {
		_, _ = p.In.Read(make([]byte, 1))
		fmt.Fprint(p.Out, "head")
		stuck()
		return exit(3)
	}}).start(t)
	return c.execURL(t, Streams{In: os.Stdin, Out: io.Discard})
}

// statusServer never reads stdin. It sends the status and then closes the connection, or with stays leaves that to the
// client.
func statusServer(t *testing.T, stuck func(), stays bool) string {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streams := make(chan httpstream.Stream, 3)
		w.Header().Set(httpstream.HeaderProtocolVersion, remotecommand.StreamProtocolV4Name)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
			streams <- s
			return nil
		})
		defer conn.Close()
		kinds := map[string]httpstream.Stream{}
		for range 3 {
			s := <-streams
			kinds[s.Headers().Get("streamType")] = s
		}
		stuck()
		fmt.Fprint(kinds["stdout"], "head")
		fmt.Fprint(kinds["error"], `{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`)
		_ = kinds["stdout"].Close()
		_ = kinds["error"].Close()
		if stays {
			<-ended // the end of the connection comes after the input
		}
	}))
	t.Cleanup(func() { close(ended); server.Close() })
	return server.URL
}

type flood struct {
	io.Reader
	t     *testing.T
	taken atomic.Int64
	since atomic.Pointer[time.Time]
}

func newFlood(t *testing.T, file bool) *flood {
	t.Helper()
	f := &flood{t: t}
	var to io.Writer
	var ends []io.Closer
	if file {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		f.Reader, to, ends = r, w, []io.Closer{r, w}
	} else {
		r, w := io.Pipe()
		f.Reader, to, ends = r, w, []io.Closer{r, w}
	}
	t.Cleanup(func() {
		for _, end := range ends {
			end.Close()
		}
	})
	go func() {
		chunk := make([]byte, 32<<10)
		for {
			n, err := to.Write(chunk)
			f.taken.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	return f
}

// stuck waits until the input is no longer read.
func (f *flood) stuck() {
	last := int64(-1)
	for now := f.taken.Load(); now == 0 || now != last; now = f.taken.Load() {
		last = now
		time.Sleep(200 * time.Millisecond)
	}
	now := time.Now()
	f.since.Store(&now)
}

func (f *flood) sinceStuck() time.Duration { return time.Since(*f.since.Load()) }
