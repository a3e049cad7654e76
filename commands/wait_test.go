package commands

import (
	"errors"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
	"github.com/crishim/crishim/logfile"
)

// withLog is a stub with a running container that has logged a line.
func withLog(t *testing.T) (*commandTest, string) {
	t.Helper()
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "pod", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = t.TempDir() })
	id := c.stub.AddContainer(pod, "web", func(o *runtimeapi.ContainerConfig) { o.LogPath = "web.log" })
	c.stub.Log(id, "stdout", "listening on port 80")
	return c, id
}

func TestWaitForALogLine(t *testing.T) {
	c, id := withLog(t)
	c.run("wait", "--for", "log=port [0-9]+$", "web").want(t, 0, "", "")
	c.run("wait", "--for", "log=^port", "--timeout", "1", "web").want(t, 1, "",
		"crishim: web has logged no line that matches \"^port\" after 1s\n")
	c.run("wait", "--for", "log=x", "--timeout", "1", "nobody").want(t, 1, "",
		"crishim: there is no container \"nobody\" yet: waiting for it\nhint: `crishim ps -a` lists them\ncrishim: nobody is not there, not started, after 1s\n")
	c.run("wait", "--for", "running", "--timeout", "1", "wbe").want(t, 1, "",
		"crishim: there is no container \"wbe\" yet: waiting for it\nhint: did you mean web? `crishim ps -a` lists them\ncrishim: wbe is not there, not running, after 1s\n")

	done := make(chan result)
	go func() { done <- c.run("wait", "--for", "log=^ready", "web") }()
	c.stub.Log(id, "stderr", "ready for you")
	(<-done).want(t, 0, "", "")

	c.stub.Exit(id, 0)
	c.run("wait", "--for", "log=ready", "web").want(t, 0, "", "")
	c.run("wait", "--for", "log=never", "web").want(t, 1, "",
		"crishim: web has ended and has logged no line that matches \"never\"\n")
}

// TestWaitListensToEvents asks but once an hour, so that only an event can
// end it.
func TestWaitListensToEvents(t *testing.T) {
	for _, state := range []string{"exited", "removed", "running"} {
		t.Run(state, func(t *testing.T) {
			c := withStub(t, stubcri.Options{})
			id := c.stub.AddCreated(c.stub.AddPod("default", "pod"), "web")
			happens := func() { c.run("start", "web").want(t, 0, "web\n", "") }
			switch state {
			case "exited":
				happens()
				happens = func() { c.stub.Exit(id, 3) }
			case "removed":
				happens = func() { c.run("rm", "web").want(t, 0, "web\n", "") }
			}
			var out test.Buffer
			env := (&Env{Out: &out, Err: &out, Now: testTime, LookupEnv: func(string) (string, bool) { return "", false }}).fresh(false)
			env.global.runtimeEndpoint = c.stub.Endpoint
			ended := make(chan error, 1)
			go func() {
				conn, err := env.connect(t.Context())
				if err == nil {
					o := &waitOptions{targets: []string{id}, goal: goal{state: state}, polling: time.Hour, listening: time.Hour}
					err = o.run(t.Context(), env, conn)
					conn.Close()
				}
				ended <- err
			}()
			for c.stub.Watchers() == 0 || !slices.Contains(c.stub.Methods(), "ContainerStatus") {
				runtime.Gosched()
			}
			happens()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("no event ended it")
			}
		})
	}
}

func TestWaitWithoutEvents(t *testing.T) {
	c := withStub(t, stubcri.Options{Unimplemented: []string{"GetContainerEvents"}})
	id := c.stub.AddContainer(c.stub.AddPod("default", "pod"), "web")
	done := make(chan result)
	go func() { done <- c.run("wait", "web") }()
	for !slices.Contains(c.stub.Methods(), "ContainerStatus") {
		runtime.Gosched()
	}
	c.stub.Exit(id, 3)
	(<-done).want(t, 0, "3\n", "")
}

func TestWaitForALogLineUsage(t *testing.T) {
	for _, text := range []string{"log=", "log=["} {
		c := withStub(t, stubcri.Options{})
		if r := c.run("wait", "--for", text, "web"); r.code != exitUsage || !strings.Contains(r.err, text) {
			t.Errorf("%s: got %+v", text, r)
		}
	}
}

func TestLineMatcher(t *testing.T) {
	entry := func(stream, text string) logfile.Entry { return logfile.Entry{Stream: stream, Text: []byte(text)} }
	m := lineMatcher{expr: regexp.MustCompile("^one line$"), pending: lines{}}
	for _, e := range []logfile.Entry{
		entry(logfile.Stdout, "one "), entry(logfile.Stderr, "one\n"), entry(logfile.Stderr, "line\n"), entry(logfile.Stderr, "one line\r\n"),
	} {
		if err := m.entry(source{}, e); err != nil {
			t.Errorf("%q: %v", e.Text, err)
		}
	}
	if m.atEnd() {
		t.Error("half a line matched")
	}
	if err := m.entry(source{}, entry(logfile.Stdout, "line\n")); !errors.Is(err, errLineFound) {
		t.Errorf("got %v for a line in two parts", err)
	}
	part := entry(logfile.Stderr, strings.Repeat("x", 16<<10))
	for range 3 * maxPending / len(part.Text) {
		if err := m.entry(source{}, part); err != nil || len(m.pending[lineKey{stream: logfile.Stderr}]) > 2*maxPending {
			t.Fatalf("a line without an end: %d bytes are kept, %v", len(m.pending[lineKey{stream: logfile.Stderr}]), err)
		}
	}
	_ = m.entry(source{}, entry(logfile.Stdout, "one line"))
	if !m.atEnd() {
		t.Error("a last line without its end did not match")
	}
}
