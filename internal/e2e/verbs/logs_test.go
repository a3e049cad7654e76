package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
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
		{"logs web --tail all --since 0 -s stdout", "one\nfour <&>\n", ""},
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

// TestLogsShowWhatSyncRotated: both know rotated files by the same names.
func TestLogsShowWhatSyncRotated(t *testing.T) {
	c := podTest(t)
	c.stdin = applyPod1
	if r := c.run("apply", "-f", "-"); r.code != 0 {
		t.Fatal(r)
	}
	id := strings.TrimSpace(c.run("ps", "-q", "--no-trunc").out)
	conn, err := grpc.NewClient(c.stub.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	now := time.Now()
	m, err := kuberuntime.New(t.Context(), kuberuntime.Options{
		Runtime: conn, Now: func() time.Time { return now },
		Dirs: pod.DefaultDirs(func(key string) (string, bool) { v, ok := c.vars[key]; return v, ok }),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	for _, line := range []string{"one", "two", "three"} {
		c.stub.Log(id, "stdout", line)
		if err := m.RotateLogs(t.Context(), kuberuntime.LogPolicy{MaxSize: 1, MaxFiles: 5}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	c.stub.Log(id, "stdout", "four")
	c.run("logs", "web").want(t, 0, "one\ntwo\nthree\nfour\n", "")
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
	t.Parallel()
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

// TestLogsFollowUntilNothingIsKnown: a runtime that has lost track of a container tells of no end.
func TestLogsFollowUntilNothingIsKnown(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	c := withStub(t, stubcri.Options{Change: func(answer proto.Message) {
		if r, ok := answer.(*runtimeapi.ContainerStatusResponse); ok {
			switch n := asked.Add(1); {
			case n < 4: // it has not started, and may still write
				r.Status.State = runtimeapi.ContainerState_CONTAINER_CREATED
			case n == 4:
				r.Status.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
			default:
				r.Status.State = runtimeapi.ContainerState_CONTAINER_EXITED
			}
		}
	}})
	pod := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = t.TempDir() })
	web := c.stub.AddContainer(pod, "main", func(o *runtimeapi.ContainerConfig) { o.LogPath = "0.log" })
	c.stub.Log(web, "stdout", "one")
	c.run("logs", "-f", "web").want(t, 0, "one\n", "")
	if n := asked.Load(); n != 4 {
		t.Errorf("asked %d times, want 4", n)
	}
}

func TestLogsThatAreNotThere(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "web")
	c.stub.AddContainer(pod, "silent")
	c.stub.AddCreated(pod, "new")
	c.stub.AddContainer(c.stub.AddPod("default", "far", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = "/nonexistent" }), "away",
		func(o *runtimeapi.ContainerConfig) { o.LogPath = "0.log" })
	c.run("logs", "silent").want(t, 1, "", "crishim: container web/silent has no log\nhint: give its pod a log_directory and the container a log_path\n")
	c.run("logs", "new").want(t, 1, "", "crishim: container web/new has not started, so it has no log\nhint: `crishim start web/new` starts it\n")
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

// TestLogsOfThePreviousAttemptInACrashLoop: between two attempts, -p shows the last ended attempt. After a success it
// shows the attempt before. crictl shows the attempt before the newest.
func TestLogsOfThePreviousAttemptInACrashLoop(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = t.TempDir() })
	attempt := func(n uint32) string {
		id := c.stub.AddCreated(pod, "app", func(o *runtimeapi.ContainerConfig) {
			o.Metadata.Attempt, o.LogPath = n, fmt.Sprintf("%d.log", n)
		})
		c.stub.Log(id, "stdout", fmt.Sprint("attempt ", n))
		return id
	}
	for n := range uint32(3) {
		id := attempt(n)
		c.stub.Begin(id)
		c.stub.Exit(id, 1)
	}
	c.run("logs", "-p", "app").want(t, 0, "attempt 2\n", "")
	c.run("--compat=crictl", "logs", "-p", "app").want(t, 0, "attempt 1\n", "")
	last := attempt(3)
	c.run("logs", "-p", "app").want(t, 0, "attempt 2\n", "")
	c.stub.Begin(last)
	c.run("logs", "-p", "app").want(t, 0, "attempt 2\n", "")
	c.stub.Exit(last, 0)
	c.run("logs", "-p", "app").want(t, 0, "attempt 2\n", "")
}

func TestLogsOfAllContainersOfAPod(t *testing.T) {
	seconds := 0
	c := withStub(t, stubcri.Options{Now: func() time.Time { seconds++; return testNow.Add(time.Duration(seconds) * time.Second) }})
	dir := t.TempDir()
	pod := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = dir })
	for _, name := range []string{"init-0", "main-0", "main-1", "side-0"} {
		id := c.stub.AddContainer(pod, name[:4], func(o *runtimeapi.ContainerConfig) {
			o.Metadata.Attempt, o.LogPath = uint32(name[5]-'0'), name+".log"
		})
		c.stub.Log(id, "stdout", name)
		if name == "init-0" || name == "main-0" {
			c.stub.Exit(id, 0)
		}
	}
	c.run("logs", "--all-containers", "web").want(t, 0, "web/init | init-0\nweb/main | main-1\nweb/side | side-0\n", "")
	c.run("logs", "--all-containers", "-p", "web").want(t, 0, "web/main | main-0\n", "")
	c.run("logs", "--all-containers", "wbe").want(t, 1, "", "crishim: there is no pod \"wbe\"\nhint: did you mean web? `crishim pods` lists them\n")
	r := c.run("logs", "web")
	if r.code != 1 || !strings.HasSuffix(r.err, "\nhint: --all-containers takes all; add -c side, or give one of these ids, or a longer name such as default/web/side\n") {
		t.Errorf("got %+v", r)
	}
}

// TestLogsOfWhatNeverWrote: an empty log of what failed says how it failed.
func TestLogsOfWhatNeverWrote(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	dir := t.TempDir()
	pod := c.stub.AddPod("shop", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = dir })
	for _, name := range []string{"silent", "wrote", "done"} {
		id := c.stub.AddContainer(pod, name, func(o *runtimeapi.ContainerConfig) { o.LogPath = name + ".log" })
		c.stub.Log(id, "stdout", "text")
		if name != "wrote" {
			if err := os.Truncate(filepath.Join(dir, name+".log"), 0); err != nil {
				t.Fatal(err)
			}
		}
		code, reason := int32(137), "OOMKilled"
		if name == "done" {
			code, reason = 0, "Completed"
		}
		c.stub.ExitFor(id, code, reason)
	}
	c.run("logs", "silent").want(t, 0, "", "crishim: container web/silent exited with status 137 (OOMKilled)\nhint: `crishim describe shop/web` shows more\n")
	c.run("logs", "wrote").want(t, 0, "text\n", "")
	c.run("logs", "done").want(t, 0, "", "")
	c.run("logs", "-o", "json", "silent").want(t, 0, "", "")
	c.run("--compat=crictl", "logs", "silent").want(t, 0, "", "")
}

// TestLogsOfAPodWithoutContainers says what apply or sync knows of it, also where the runtime has no sandbox.
func TestLogsOfAPodWithoutContainers(t *testing.T) {
	for _, test := range []struct{ call, why string }{
		{"PullImage", "main cannot start: pull image nosuch:1: no such registry"},
		{"RunPodSandbox", "the sandbox cannot be created: no such registry"},
	} {
		c := withStub(t, stubcri.Options{})
		c.vars = map[string]string{"CRISHIM_ROOT": t.TempDir(), "CRISHIM_LOGS": t.TempDir()}
		c.stub.Fail(test.call, errors.New("no such registry"))
		manifest := c.file("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: \"nosuch:1\"}]}\n")
		if r := c.run("sync", "--once", filepath.Dir(manifest)); r.code != 1 {
			t.Errorf("sync: %+v", r)
		}
		c.run("logs", "web").want(t, 1, "", "crishim: pod default/web has no container yet: "+test.why+"\nhint: `crishim describe web` shows more\n")
		r := c.run("describe", "web")
		if want := "Cause:         " + test.why + "\n"; r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("no %q in %+v", want, r)
		}
	}
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
	t.Parallel()
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
	c.run("logs", "-p", "--follow-restarts", "app").want(t, 2, "", "crishim: --follow-restarts contradicts --previous and --attempt, which name one attempt\nusage: crishim logs [options] CONTAINER...\n")
}

// Pods of one name in two namespaces are told apart.
func TestLogsOfPodsWithOneName(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	for _, namespace := range []string{"dev", "prod"} {
		pod := c.stub.AddPod(namespace, "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = filepath.Join(t.TempDir(), namespace) })
		id := c.stub.AddContainer(pod, "main", func(o *runtimeapi.ContainerConfig) {
			o.LogPath, o.Labels = "0.log", map[string]string{"app": "web"}
		})
		c.stub.Log(id, "stdout", "in "+namespace)
	}
	r := c.run("logs", "--selector", "app=web")
	if r.code != 0 || !strings.Contains(r.out, "dev/web/main | in dev\n") || !strings.Contains(r.out, "prod/web/main | in prod\n") {
		t.Errorf("got %+v", r)
	}
	if r := c.run("logs", "dev/web/main", "prod/web/main"); !strings.Contains(r.out, "prod/web/main | in prod\n") {
		t.Errorf("got %+v", r)
	}
}

// TestMergedLogsAreReadAsTheyAreWritten: no more of them is in memory than is about to be written.
func TestMergedLogsAreReadAsTheyAreWritten(t *testing.T) {
	c, web, db := logsTest(t)
	text := strings.Repeat("x", 16<<10)
	for range 2048 {
		c.stub.Log(web, "stdout", text)
		c.stub.Log(db, "stdout", text)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.run("logs", "web", "db", "-s", "stdout", "--limit-bytes", "30").want(t, 0, "web/main | one\ndb/main | two\nw", "")
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20 {
		t.Errorf("%d MiB were read", grown>>20)
	}
}
