package verbs

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/state"
)

// countingEngine stands before the real engine and keeps what is asked of it.
type countingEngine struct {
	socket string

	mu    sync.Mutex
	calls []string
	own   []string // ids of the test's own containers; others come and go on the same engine
}

func startCountingEngine(t *testing.T) *countingEngine {
	t.Helper()
	real, found := strings.CutPrefix(enginetest.Require(t).Endpoint().Host, "unix://")
	if !found {
		t.Skip("the engine is not on a unix socket")
	}
	c := &countingEngine{socket: filepath.Join(test.SocketDir(t), "docker.sock")}
	l, err := net.Listen("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", real)
	}}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "docker"})
	proxy.Transport, proxy.FlushInterval = transport, -1
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.note(r)
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = s.Serve(l) }() // ends with Close
	t.Cleanup(func() { s.Close(); transport.CloseIdleConnections() })
	return c
}

var (
	pathVersion = regexp.MustCompile(`^/v[0-9.]+/`)
	pathID      = regexp.MustCompile(`(sha256:)?[0-9a-f]{64}`)
)

func (c *countingEngine) note(r *http.Request) {
	id := pathID.FindString(r.URL.Path)
	call := r.Method + " " + pathID.ReplaceAllString(pathVersion.ReplaceAllString(r.URL.Path, "/"), "ID")
	c.mu.Lock()
	defer c.mu.Unlock()
	if call == "GET /containers/ID/json" && len(c.own) > 0 && !slices.Contains(c.own, id) {
		return // a created container of another test, which a list looks at
	}
	// A command that is killed, of another test, leaves a directory, and the next one asks for what it names there.
	sweeps := call == "GET /containers/json" && strings.Contains(r.URL.Query().Get("filters"), state.LabelOwner) ||
		call == "GET /exec/ID/json" && !slices.Contains(c.calls, "POST /containers/ID/exec")
	if sweeps {
		return
	}
	c.calls = append(c.calls, call)
}

func (c *countingEngine) keep(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = append(c.own, id)
}

// take gives the calls in alphabetical order, because some are made at once.
// How often an exec is asked about depends on how fast it ends.
func (c *countingEngine) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := slices.Sorted(slices.Values(c.calls))
	c.calls = nil
	asked := 0
	return slices.DeleteFunc(calls, func(call string) bool {
		if call == "GET /exec/ID/json" {
			asked++
		}
		return call == "GET /exec/ID/json" && asked > 1
	})
}

// run runs a command line on the embedded shim on that engine.
func (c *countingEngine) run(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	lookup := func(string) (string, bool) { return "", false }
	var out, errs test.Buffer
	env := &cli.Process{
		In: strings.NewReader(stdin), Out: &out, Err: &errs, LookupEnv: lookup, Now: time.Now, Version: "v0.0.0-test",
		StartShim: systemShim,
	}
	if code := commands.Main(t.Context(), append([]string{"crishim", "-r", "docker://" + c.socket}, args...), env); code != 0 {
		t.Fatalf("crishim %s: status %d: %s", strings.Join(args, " "), code, errs.String())
	}
	return strings.TrimSpace(out.String())
}

// TestEngineCalls holds what each command asks of the engine; repeated questions about one exec count once.
func TestEngineCalls(t *testing.T) {
	c := startCountingEngine(t)
	image := os.Getenv("CRISHIM_TEST_IMAGE")
	if image == "" {
		test.Missing(t, "CRISHIM_TEST_IMAGE names no image")
	}
	dir := t.TempDir()
	pod := `{"metadata":{"name":"calls","namespace":"calls","uid":"` + filepath.Base(c.socket) + time.Now().Format("150405.000000") + `"}}`
	podFile, containerFile := filepath.Join(dir, "pod.json"), filepath.Join(dir, "container.json")
	container := `{"metadata":{"name":"calls"},"image":{"image":"` + image + `"},"command":["sleep","10000"]}`
	for path, text := range map[string]string{podFile: pod, containerFile: container} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	podID := c.run(t, "", "runp", podFile) // this one may bring the pause image along
	c.keep(podID)
	removed := false
	t.Cleanup(func() {
		if !removed {
			c.run(t, "", "rmp", "-f", podID)
		}
	})
	var id string
	const ping, containers, one = "GET /_ping", "GET /containers/json", "GET /containers/ID/json"
	for _, tt := range []struct {
		name  string
		args  func() []string
		calls []string
	}{
		{"version", line("version"), []string{ping, "GET /version"}},
		{"images", line("images"), []string{ping, "GET /images/json"}},
		{"inspecti IMAGE", line("inspecti", "-q", image), []string{ping, "GET /images/IMAGE/json"}},
		{"pods --id ID", line("pods", "--id", podID), []string{ping, containers, containers}},
		{"create POD-ID FILE FILE", line("create", podID, containerFile, podFile), []string{ping, one, containers, containers, containers, "GET /images/IMAGE/json", "POST /containers/create"}},
		{"start ID", func() []string { return []string{"start", id} }, []string{ping, one, one, containers, "POST /containers/ID/start"}},
		{"ps", line("ps", "--pod", podID), []string{ping, containers, containers, containers}},
		{"inspect ID", func() []string { return []string{"inspect", id} }, []string{ping, one, "GET /images/ID/json"}},
		{"inspect NAME", line("inspect", "calls/calls"), []string{ping, one, containers, containers, "GET /images/ID/json"}},
		{"inspectp ID", line("inspectp", podID), []string{ping, one, containers}},
		{"exec ID", func() []string { return []string{"exec", id, "true"} }, []string{ping, one, "GET /exec/ID/json", "POST /containers/ID/exec", "POST /exec/ID/start"}},
		{"stats ID -o json", func() []string { return []string{"stats", id, "-o", "json"} }, []string{ping, one, containers, containers}},
		{"info", line("info"), []string{ping, "GET /info", "HEAD /_ping"}},
		{"stop ID", func() []string { return []string{"stop", "-t", "0", id} }, []string{ping, one, one, containers, "POST /containers/ID/stop"}},
		{"rm ID", func() []string { return []string{"rm", id} }, []string{ping, "DELETE /containers/ID", one, containers}},
		{"stopp ID", line("stopp", podID), []string{ping, one, one, containers, containers, "POST /containers/ID/stop"}},
		{"rmp ID", line("rmp", podID), []string{ping, "DELETE /containers/ID", one, containers, containers}},
	} {
		c.take()
		out := c.run(t, "", tt.args()...)
		if strings.HasPrefix(tt.name, "create") {
			id = out
			c.keep(id)
		}
		removed = removed || strings.HasPrefix(tt.name, "rmp")
		got := c.take()
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], "/"+image+"/", "/IMAGE/")
		}
		slices.Sort(got)
		if diff := cmp.Diff(slices.Sorted(slices.Values(tt.calls)), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func line(w ...string) func() []string { return func() []string { return w } }
