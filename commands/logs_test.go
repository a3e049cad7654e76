package commands

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/stubcri"
)

// logsTest is a node with two containers that have written.
func logsTest(t *testing.T) (c *commandTest, web, db string) {
	t.Helper()
	seconds := 0
	c = withStub(t, stubcri.Options{Now: func() time.Time { seconds++; return testNow.Add(time.Duration(seconds) * time.Second) }})
	add := func(pod string) string {
		id := c.stub.AddPod("default", pod, func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = filepath.Join(t.TempDir(), pod) })
		return c.stub.AddContainer(id, "main", func(o *runtimeapi.ContainerConfig) {
			o.LogPath, o.Labels = "main/0.log", map[string]string{"tier": pod}
		})
	}
	web, db = add("web"), add("db")
	c.stub.Log(web, "stdout", "one")
	c.stub.Log(db, "stdout", "two")
	c.stub.Log(web, "stderr", "three")
	c.stub.Log(web, "stdout", "four <&>")
	return c, web, db
}

func TestLogs(t *testing.T) {
	c, _, _ := logsTest(t)
	for _, test := range []struct {
		line, out, err string
	}{
		{"logs web", "one\nfour <&>\n", "three\n"},
		{"logs web/main --tail 1", "four <&>\n", ""},
		{"logs --tail=2 web", "four <&>\n", "three\n"},
		{"logs web --stream stderr --tail 1", "", "three\n"},
		{"logs web --grep o[nu]", "one\nfour <&>\n", ""},
		{"logs web --limit-bytes 6 -s stdout", "one\nfo", ""},
		{"logs web db -s stdout", "web/main | one\ndb/main | two\nweb/main | four <&>\n", ""},
		{"logs --label tier=db", "two\n", ""},
	} {
		t.Run(test.line, func(t *testing.T) {
			sub := *c
			sub.t = t
			sub.run(strings.Fields(test.line)...).want(t, 0, test.out, test.err)
		})
	}
}

func TestLogsAsJSONAndWithTimes(t *testing.T) {
	c, _, _ := logsTest(t)
	r := c.run("logs", "db", "-o", "json")
	if r.code != 0 || !strings.HasPrefix(r.out, `{"time":"2026-01-02T03:04:`) ||
		!strings.HasSuffix(r.out, `"stream":"stdout","namespace":"default","pod":"db","container":"main","log":"two"}`+"\n") {
		t.Errorf("-o json: %+v", r)
	}
	r = c.run("logs", "-t", "db")
	stamp, text, _ := strings.Cut(r.out, " ")
	if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil || text != "two\n" {
		t.Errorf("-t: %+v", r)
	}
	c.run("logs", "db", "--since", stamp).want(t, 0, "two\n", "")
	c.run("logs", "db", "--until", "2026-01-02T03:04:05Z").want(t, 0, "", "")
}

func TestLogsFollowUntilTheEnd(t *testing.T) {
	c, web, _ := logsTest(t)
	asked := 0
	c.stub.Before("ContainerStatus", func(context.Context) {
		// The second question comes while the log is followed.
		if asked++; asked == 2 {
			c.stub.Log(web, "stdout", "last words")
			go c.stub.Exit(web, 0)
		}
	})
	c.run("logs", "-f", "web", "-s", "stdout").want(t, 0, "one\nfour <&>\nlast words\n", "")
}

func TestLogsThatAreNotThere(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "web")
	c.stub.AddContainer(pod, "silent")
	c.stub.AddCreated(pod, "new")
	c.stub.AddContainer(c.stub.AddPod("default", "far", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = "/nonexistent" }), "away",
		func(o *runtimeapi.ContainerConfig) { o.LogPath = "0.log" })
	c.run("logs", "silent").want(t, 1, "", "crishim: container web/silent keeps no log\nhint: give its pod a log_directory and the container a log_path\n")
	c.run("logs", "new").want(t, 1, "", "crishim: container web/new has not started, so it has no log\nhint: crishim start web/new starts it\n")
	c.run("logs", "away").want(t, 1, "", "crishim: the log of container far/away is not on this machine: /nonexistent/0.log\nhint: run crishim on the node itself\n")
	c.run("logs", "-p", "silent").want(t, 1, "", "crishim: container silent has no previous attempt\n")
}

func TestLogsOfThePreviousAttempt(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = t.TempDir() })
	for attempt, text := range []string{"before", "now"} {
		id := c.stub.AddContainer(pod, "app", func(o *runtimeapi.ContainerConfig) {
			o.Metadata.Attempt, o.LogPath = uint32(attempt), text+".log"
		})
		c.stub.Log(id, "stdout", text)
		if attempt == 0 {
			c.stub.Exit(id, 1)
		}
	}
	c.run("logs", "app").want(t, 0, "now\n", "")
	c.run("logs", "app", "-p").want(t, 0, "before\n", "")
}

// restartingNode has a running container app whose log says "first".
func restartingNode(t *testing.T) (c *commandTest, pod, first string, next func() string) {
	t.Helper()
	c = withStub(t, stubcri.Options{})
	dir := t.TempDir()
	pod = c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = dir })
	attempt := uint32(0)
	add := func(text string) string {
		id := c.stub.AddCreated(pod, "app", func(o *runtimeapi.ContainerConfig) {
			o.Metadata.Attempt, o.LogPath = attempt, fmt.Sprintf("%d.log", attempt)
		})
		attempt++
		c.stub.Log(id, "stdout", text)
		c.stub.Begin(id)
		return id
	}
	return c, pod, add("first"), func() string { return add("second") }
}

func TestLogsFollowRestarts(t *testing.T) {
	for _, line := range []string{"logs -f app", "logs --follow-restarts app", "logs -f --tail 1 web/app", "logs -f --since 2020-01-01 app"} {
		t.Run(line, func(t *testing.T) {
			c, pod, first, next := restartingNode(t)
			begun := make(chan struct{})
			var once sync.Once
			c.stub.Before("ContainerStatus", func(context.Context) { once.Do(func() { close(begun) }) })
			done := make(chan result, 1)
			go func() { done <- c.run(strings.Fields(line)...) }()
			<-begun
			c.stub.Exit(first, 1)
			second := next()
			c.stub.Exit(second, 0)
			c.stub.StopPod(pod) // else the third attempt is waited for
			(<-done).want(t, 0, "first\nsecond\n", "")
		})
	}
}

func TestLogsOfOneAttemptOnlyEndWithIt(t *testing.T) {
	c, _, first, next := restartingNode(t)
	c.stub.Exit(first, 1)
	c.stub.Exit(next(), 0)
	c.run("logs", "-f", "--attempt", "0", "app").want(t, 0, "first\n", "")
	c.run("logs", "-f", "-p", "app").want(t, 0, "first\n", "")
	c.run("--compat=crictl", "logs", "-f", first).want(t, 0, "first\n", "")
	c.run("logs", "-f", first).want(t, 0, "first\nsecond\n", "")
	c.run("logs", "-p", "--follow-restarts", "app").want(t, 2, "", "crishim: --follow-restarts cannot go with --previous or --attempt, which name one attempt\nusage: crishim logs [options] CONTAINER...\n")
}
