package logs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/internal/logdir"
	"github.com/crishim/crishim/shim/state"
)

const (
	testImage = "busybox:crishim" // from hack/engine.sh
	patience  = 2 * time.Minute
)

func TestMain(m *testing.M) {
	test.MainWithLeakCheck(m,
		// The Docker client keeps its connections for the next call.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
	)
}

func startService(t *testing.T, engine Engine) *Service {
	t.Helper()
	s := New(Options{Engine: engine, Write: true})
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func logged(t *testing.T, engine *docker.Client, tty bool, script string) (id, path string) {
	t.Helper()
	return loggedBy(t, engine, container.LogConfig{}, tty, script)
}

// loggedBy is logged with a log driver.
func loggedBy(t *testing.T, engine *docker.Client, driver container.LogConfig, tty bool, script string) (id, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pod", "0.log")
	name := make([]byte, 8)
	_, _ = rand.Read(name)
	made, err := engine.ContainerCreate(t.Context(), &container.Config{
		Image: testImage, Tty: tty, Cmd: []string{"sh", "-c", script},
		Labels: map[string]string{state.LabelType: state.TypeContainer, state.LabelLogPath: path},
	}, &container.HostConfig{NetworkMode: "none", LogConfig: driver}, nil, nil, "k8s_crishim-logs-test-"+hex.EncodeToString(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if t.Failed() {
			engines, err := engine.ContainerLogs(ctx, made.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true, Timestamps: true})
			var has []byte
			if err == nil {
				has, err = io.ReadAll(engines)
			}
			log, _ := os.ReadFile(path)
			t.Logf("the log has %d bytes: %.300q; the engine's has %d: %.300q, %v", len(log), log, len(has), has, err)
		}
		_ = engine.ContainerRemove(ctx, made.ID, container.RemoveOptions{Force: true})
	})
	if err := engine.ContainerStart(t.Context(), made.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	return made.ID, path
}

// texts returns the lines of a log without times.
func texts(t *testing.T, path string) []string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	format := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (std(?:out|err) [FP] .*)$`)
	var out []string
	for l := range strings.Lines(string(content)) {
		l, whole := strings.CutSuffix(l, "\n")
		if !whole {
			break // still being written
		}
		m := format.FindStringSubmatch(l)
		if m == nil {
			t.Fatalf("not a line of a CRI log: %q", l)
		}
		out = append(out, m[1])
	}
	return out
}

func TestLogOfBothStreams(t *testing.T) {
	engine := enginetest.Require(t)
	s := startService(t, engine)
	id, path := logged(t, engine, false, "echo out; echo err >&2; head -c 20000 /dev/zero | tr '\\0' x; echo; printf unfinished")
	if err := s.Started(t.Context(), id, logdir.Place{Path: path}, ""); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "the whole log", func() bool { return len(texts(t, path)) == 5 })
	got := map[string]int{}
	for _, text := range texts(t, path) {
		got[fmt.Sprintf("%.12s %d", text, len(text))]++
	}
	want := map[string]int{"stdout F out 12": 1, "stderr F err 12": 1, "stdout P xxx 16393": 1, "stdout F xxx 3625": 1, "stdout P unf 19": 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLogOfTerminal(t *testing.T) {
	engine := enginetest.Require(t)
	s := startService(t, engine)
	id, path := logged(t, engine, true, "echo one; head -c 20000 /dev/zero | tr '\\0' x; echo; echo end")
	if err := s.Started(t.Context(), id, logdir.Place{Path: path}, ""); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "the whole log", func() bool { return len(texts(t, path)) >= 4 })
	all := strings.Join(texts(t, path), "")
	if n := strings.Count(all, "x"); n != 20000 || !strings.HasSuffix(all, "stdout F end\r") {
		t.Errorf("got %d of 20000 bytes and the end %q", n, all[max(0, len(all)-20):])
	}
}

// drivers are log drivers without external dependencies. The engine keeps a copy for drivers that cannot be read.
var drivers = map[string]container.LogConfig{
	"json-file": {Type: "json-file"},
	"local":     {Type: "local"},
	"syslog":    {Type: "syslog", Config: map[string]string{"syslog-address": "udp://127.0.0.1:9"}},
	"fluentd":   {Type: "fluentd", Config: map[string]string{"fluentd-address": "127.0.0.1:9", "fluentd-async-connect": "true"}},
}

func TestLogOfEveryDriver(t *testing.T) {
	engine := enginetest.Require(t)
	s := startService(t, engine)
	for name, driver := range drivers {
		for _, tty := range []bool{false, true} {
			id, path := loggedBy(t, engine, driver, tty, "echo one; head -c 20000 /dev/zero | tr '\\0' x; echo; echo two; printf unfinished")
			if err := s.Started(t.Context(), id, logdir.Place{Path: path}, ""); err != nil {
				t.Fatal(err)
			}
			test.Until(t, "the whole log by "+name, func() bool { return len(texts(t, path)) == 5 })
			var got []string
			for _, text := range texts(t, path) {
				text = strings.TrimSuffix(text, "\r")
				got = append(got, fmt.Sprintf("%.21s %d", text, len(text)))
			}
			want := []string{"stdout F one 12", "stdout P xxxxxxxxxxxx 16393", "stdout F xxxxxxxxxxxx 3625", "stdout F two 12", "stdout P unfinished 19"}
			if !slices.Equal(got, want) {
				t.Errorf("%s, terminal %t: got %q, want %q", name, tty, got, want)
			}
		}
	}
}

// A driver that keeps nothing results in an empty log, and serve logs the reason.
func TestLogThatCannotBeRead(t *testing.T) {
	engine := enginetest.Require(t)
	var said test.Buffer
	s := New(Options{Engine: engine, Write: true, Log: slog.New(slog.NewTextHandler(&said, nil))})
	s.Start()
	t.Cleanup(s.Close)
	id, path := loggedBy(t, engine, container.LogConfig{Type: "none"}, false, "echo one; exec sleep 1000")
	if err := s.Started(t.Context(), id, logdir.Place{Path: path}, ""); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "the reason", func() bool {
		return strings.Contains(said.String(), "log driver cannot be read") && s.follower(id) == nil
	})
	if content, err := os.ReadFile(path); err != nil || len(content) != 0 {
		t.Errorf("got %q, %v, want an empty log", content, err)
	}
}

// counted checks that logs contain the numbers to n exactly once and in order.
func counted(t *testing.T, n int, paths ...string) {
	t.Helper()
	next := 1
	for _, path := range paths {
		for _, text := range texts(t, path) {
			if want := fmt.Sprintf("stdout F %d", next); text != want {
				t.Fatalf("%s: got %q, want %q", path, text, want)
			}
			next++
		}
	}
	if next <= n {
		t.Errorf("got %d lines, want at least %d", next-1, n)
	}
}

const count = "i=0; while :; do i=$((i+1)); echo $i; [ $((i%100)) = 0 ] && sleep 0.02; done"

func TestLogGoesOnAfterRestarts(t *testing.T) {
	engine := enginetest.Require(t)
	id, path := logged(t, engine, false, count)
	for round := range 4 {
		s := startService(t, engine)
		before := len(texts(t, path))
		if round == 0 {
			if err := s.Started(t.Context(), id, logdir.Place{Path: path}, ""); err != nil {
				t.Fatal(err)
			}
		} // later the service finds the container by itself
		test.Until(t, "more lines", func() bool { return len(texts(t, path)) > before+200 })
		s.Close()
		if round == 2 { // as if the shim was killed within a line
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString("2026-01-02T03:04:05.0000"); err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
	}
	counted(t, 800, path)
}

// One of two shims on an engine writes the log. When it ends, the other continues.
func TestTwoShimsWriteOneLog(t *testing.T) {
	engine := enginetest.Require(t)
	first := startService(t, engine)
	id, path := logged(t, engine, false, count)
	if err := first.Started(t.Context(), id, logdir.Place{Path: path}, ""); err != nil {
		t.Fatal(err)
	}
	second := startService(t, engine) // adopts the container
	more := func(what string) {
		t.Helper()
		before := len(texts(t, path))
		test.Until(t, what, func() bool { return len(texts(t, path)) > before+500 })
	}
	more("lines of the first")
	first.Close()
	more("lines of the second")
	second.Close()
	counted(t, 1000, path)
}

func TestReopenContainerLog(t *testing.T) {
	engine := enginetest.Require(t)
	s := startService(t, engine)
	id, path := logged(t, engine, false, count)
	if err := s.Started(t.Context(), id, logdir.Place{Path: path}, ""); err != nil {
		t.Fatal(err)
	}
	var files []string
	for i := range 3 {
		test.Until(t, "lines", func() bool { return len(texts(t, path)) > 100 })
		old := fmt.Sprintf("%s.%d", path, i)
		if err := os.Rename(path, old); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ReopenContainerLog(t.Context(), &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the new file is not there when the call returns: %v", err)
		}
		files = append(files, old)
	}
	test.Until(t, "lines", func() bool { return len(texts(t, path)) > 100 })
	s.Close()
	counted(t, 300, append(files, path)...)
}

func TestLinkOfOneCommandBecomesAFile(t *testing.T) {
	engine := enginetest.Require(t)
	id, path := logged(t, engine, false, "echo before; exec sleep 1000")
	c, err := engine.ContainerInspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(c.LogPath, path); err != nil {
		t.Fatal(err)
	}
	startService(t, engine)
	test.Until(t, "the log from its beginning", func() bool {
		info, err := os.Lstat(path)
		return err == nil && info.Mode().IsRegular() && len(texts(t, path)) == 1
	})
	if got := texts(t, path)[0]; got != "stdout F before" {
		t.Errorf("got %q", got)
	}
}

func TestReopenRefusals(t *testing.T) {
	engine := enginetest.Require(t)
	s := startService(t, engine)
	id, path := logged(t, engine, false, "echo bye")
	if err := s.Started(t.Context(), id, logdir.Place{Path: path}, ""); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "the container to end", func() bool {
		c, err := engine.ContainerInspect(t.Context(), id)
		return err == nil && !c.State.Running
	})
	reopen := func(s *Service, id string) error {
		_, err := s.ReopenContainerLog(t.Context(), &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
		return err
	}
	if err := reopen(s, id); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("ended container: got %v", err)
	}
	if err := reopen(s, "nosuch"); !errdefs.IsNotFound(err) {
		t.Errorf("unknown container: got %v", err)
	}
	if err := reopen(New(Options{Engine: engine}), id); !errdefs.IsNotImplemented(err) {
		t.Errorf("shim of one command: got %v", err)
	}
	s.Complete(t.Context(), id)
	if err := engine.ContainerRemove(t.Context(), id, container.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Removed(t.Context(), id, logdir.Place{Path: path}, ""); err != nil {
		t.Error(err)
	}
	if got := texts(t, path); len(got) != 1 {
		t.Errorf("the log of a removed container: got %q", got)
	}
}
