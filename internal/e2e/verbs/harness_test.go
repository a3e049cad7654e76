// Package verbs has the tests that run whole command lines in this process, mostly on a runtime in memory.
package verbs

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
	"github.com/crishim/crishim/shim"
)

// TestMain keeps what the tests make out of the machine's own logs. With CRISHIM_TEST_PROGRAM
// the test's binary is crishim, for shells that start it.
func TestMain(m *testing.M) {
	if os.Getenv("CRISHIM_TEST_PROGRAM") != "" {
		env := cli.SystemProcess("v0.0.0-test")
		env.CompleteTimeout, env.ConnectTimeout = time.Minute, time.Minute
		os.Exit(commands.Main(context.Background(), append([]string{"crishim"}, os.Args[1:]...), env))
	}
	dir, err := os.MkdirTemp("", "crishim-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cli.OwnLogs = filepath.Join(dir, "logs")
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// systemShim is the embedded shim of the real process, whose Env also sets what is one for all.
var systemShim = cli.SystemProcess("").StartShim

// testNow is when tests of whole command lines take place.
var testNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// result is how a command line ended.
type result struct {
	code     int
	out, err string
}

// commandTest runs whole command lines in one environment.
type commandTest struct {
	t     *testing.T
	stub  *stubcri.Server // nil: nothing to connect to
	stdin string
	vars  map[string]string
	shown func(string)                                                            // is called with each write to stdout
	shim  func(context.Context, client.Engine, shim.Options) (client.Shim, error) // nil: no embedded shim

	now      func() time.Time // nil: a minute and a half after testNow
	cluster  *cli.Cluster
	terminal bool   // stdout and stderr are one
	answer   string // typed on the terminal, which stdin is then
}

// withStub is a test against an in-memory runtime.
func withStub(t *testing.T, o stubcri.Options) *commandTest {
	t.Helper()
	if o.Now == nil {
		o.Now = func() time.Time { return testNow }
	}
	stub := stubcri.Start(t, o)
	t.Cleanup(func() { // what root has for logs of pods that nothing removed
		for _, call := range stub.Calls() {
			if r, ok := call.Request.(*runtimeapi.RunPodSandboxRequest); ok {
				if err := cli.RemoveOwnLogs(&client.Conn{}, r.GetConfig().GetMetadata()); err != nil {
					t.Error(err)
				}
			}
		}
	})
	// The records of pods stay out of /var/lib/crishim.
	return &commandTest{t: t, stub: stub, vars: map[string]string{"CRISHIM_ROOT": filepath.Join(t.TempDir(), "root")}}
}

// run runs "crishim ARGS..." and waits for its end.
func (c *commandTest) run(args ...string) result {
	c.t.Helper()
	return c.runAs(c.t.Context(), "crishim", args...)
}

func (c *commandTest) runAs(ctx context.Context, name string, args ...string) result {
	c.t.Helper()
	vars := map[string]string{"CRI_CONFIG_FILE": filepath.Join(c.t.TempDir(), "none.yaml"), "CONTAINER_RUNTIME_ENDPOINT": "unix:///nonexistent/test.sock"}
	if c.stub != nil {
		vars["CONTAINER_RUNTIME_ENDPOINT"] = c.stub.Endpoint
	}
	if err := os.WriteFile(vars["CRI_CONFIG_FILE"], nil, 0o600); err != nil {
		c.t.Fatal(err)
	}
	for key, value := range c.vars {
		vars[key] = value
	}
	if c.now == nil {
		c.now = func() time.Time { return testNow.Add(90 * time.Second) }
	}
	var out, errs test.Buffer
	typed := c.answer != ""
	env := &cli.Process{
		In: strings.NewReader(c.stdin + c.answer), Out: io.MultiWriter(&out, writerFunc(c.shown)), Err: &errs,
		LookupEnv:       func(key string) (string, bool) { value, ok := vars[key]; return value, ok },
		Now:             c.now,
		Version:         "v0.0.0-test",
		CompleteTimeout: time.Minute,
		StartShim:       c.shim,
		StatsSecond:     10 * time.Millisecond,
		Cluster:         c.cluster,
		OutTerminal:     c.terminal, ErrTerminal: c.terminal || typed, InTerminal: typed,
		ConnectTimeout: time.Minute, // on a busy machine the usual 2 s are not always enough
	}
	code := commands.Main(ctx, append([]string{name}, args...), env)
	return result{code, out.String(), errs.String()}
}

// writerFunc is called with what is written, if it is there.
type writerFunc func(string)

func (f writerFunc) Write(p []byte) (int, error) {
	if f != nil {
		f(string(p))
	}
	return len(p), nil
}

// want fails unless the result is this one.
func (r result) want(t *testing.T, code int, out, errs string) {
	t.Helper()
	if diff := cmp.Diff(result{code, out, errs}, r, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("result differs (-want +got):\n%s", diff)
	}
}

// golden compares a whole result with testdata/NAME.golden.
func (c *commandTest) golden(name string, args ...string) {
	c.t.Helper()
	r := c.run(args...)
	got := fmt.Sprintf("$ crishim %s\n-- stdout --\n%s-- stderr --\n%s-- exit %d --\n", strings.Join(args, " "), r.out, r.err, r.code)
	if c.stub != nil {
		got = strings.ReplaceAll(got, c.stub.Endpoint, "ENDPOINT")
	}
	test.Golden(c.t, name, got)
}

// file writes a file for a test and returns its path.
func (c *commandTest) file(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// seedNode gives the stub two pods, a running, an ended and a created
// container, and two images.
func seedNode(s *stubcri.Server) {
	web := s.AddPod("default", "web", func(c *runtimeapi.PodSandboxConfig) { c.Labels = map[string]string{"app": "web"} })
	db := s.AddPod("prod", "db")
	labelled := func(pod, namespace string) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) {
			c.Labels = map[string]string{kube.LabelPodName: pod, kube.LabelPodNamespace: namespace, "app": pod}
		}
	}
	s.AddContainer(web, "nginx", labelled("web", "default"))
	ended := s.AddContainer(db, "migrate", labelled("db", "prod"))
	s.Exit(ended, 3)
	s.AddCreated(db, "postgres", labelled("db", "prod"))
	s.AddImage("registry.example.com/app:v1", "registry.example.com/app:latest")
	s.AddImage("registry.k8s.io/pause:3.9")
	s.Image("registry.k8s.io/pause:3.9", func(i *runtimeapi.Image) { i.Pinned = true })
}

func testTime() time.Time { return testNow }
