package kuberuntime

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// TestHooksDoNotFollowToOtherHosts: a redirect must not send the headers of a hook to another host.
func TestHooksDoNotFollowToOtherHosts(t *testing.T) {
	t.Parallel()
	elsewhere := 0
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { elsewhere++ }))
	t.Cleanup(other.Close)
	_, otherPort, err := net.SplitHostPort(other.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	seen := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "http://localhost:"+otherPort+"/", http.StatusFound)
		case "/near":
			http.Redirect(w, r, "/here", http.StatusFound)
		case "/here":
			seen = r.Header.Get("X-Token")
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		}
	}))
	t.Cleanup(server.Close)
	host, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	for path, wantErr := range map[string]bool{"/away": false, "/near": false, "/round": true} {
		hook := &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(int32(port)), Scheme: "HTTP", HTTPHeaders: []v1.HTTPHeader{{Name: "X-Token", Value: "secret"}}}
		if err := httpHook(t.Context(), hook, host, nil); (err != nil) != wantErr {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if elsewhere > 0 {
		t.Error("a hook went to another host")
	}
	if seen != "secret" {
		t.Errorf("got %q after a redirect to the same host, want the manifest's header", seen)
	}
}

// TestLongAnswersAreCut: the response to an HTTP hook is truncated, because it becomes part of an event.
func TestLongAnswersAreCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 32<<10)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for size := len(long); ; size = 8 << 20 {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1<<10)) // the request
			fmt.Fprintf(conn, "HTTP/1.1 500 %s\r\nContent-Length: 0\r\n\r\n", strings.Repeat("x", size))
			conn.Close()
		}
	}()
	var dirs pod.Dirs
	f := newFixture(t, func(o *Options) {
		dirs = o.Dirs
		o.Events = func(e Event) {
			if err := AppendEvent(o.Dirs, e); err != nil {
				t.Error(err)
			}
		}
	})
	p, _ := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	if err := os.MkdirAll(dirs.Pod("u1"), 0o750); err != nil {
		t.Fatal(err)
	}
	hook := &v1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(int32(l.Addr().(*net.TCPAddr).Port)), Scheme: "HTTP"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, name := range []string{"long", "longer"} {
		err := httpHook(ctx, hook, "127.0.0.1", nil)
		if err == nil || len(err.Error()) > 64<<10 {
			t.Errorf("%s: got an error of %d bytes", name, len(fmt.Sprint(err)))
		}
		f.warn(p, "a", eventPreStopFailed, "%v", err)
		f.warn(p, "a", EventUnhealthy, "%s%s", name, strings.Repeat(long, 100))
	}
	events, err := podEvents(dirs, "u1")
	if err != nil || len(events) != 4 {
		t.Fatalf("got %d events, %v, want 4", len(events), err)
	}
	for _, e := range events {
		if len(e.Message) > maxEventMessage {
			t.Errorf("a message of %d bytes", len(e.Message))
		}
	}
}
