package kuberuntime

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/logfile"
)

// TestFollowedLogEnds: a container that does not run writes nothing more.
func TestFollowedLogEnds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte("2026-01-02T03:04:05Z stdout F hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, state := range []runtimeapi.ContainerState{
		runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_UNKNOWN,
	} {
		f := newFixture(t, func(o *Options) {
			o.answer(map[string]func() (proto.Message, error){"ContainerStatus": func() (proto.Message, error) {
				return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{State: state, LogPath: path}}, nil
			}})
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		var out strings.Builder
		if err := f.GetContainerLogs(ctx, "c", logfile.Options{Tail: -1, Follow: true}, &out, &out); err != nil || out.String() != "hello\n" {
			t.Errorf("%s: got %q, %v", state, out.String(), err)
		}
		cancel()
	}
}

func TestRotateLogs(t *testing.T) {
	t.Parallel()
	var seconds atomic.Int64 // rotated files have the time in their names
	var path string
	f := newFixture(t, func(o *Options) {
		o.Now = func() time.Time { return time.Unix(seconds.Add(1), 0) }
		// Like a runtime that writes its own logs.
		o.answer(map[string]func() (proto.Message, error){"ReopenContainerLog": func() (proto.Message, error) {
			return &runtimeapi.ReopenContainerLogResponse{}, os.WriteFile(path, nil, 0o600)
		}})
	})
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	if _, err := f.Up(deadline(t), p, set, false); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(f.o.Dirs.PodLogs(p), "a", "0.log")
	files := func(suffix string) int {
		t.Helper()
		all, err := filepath.Glob(path + "*" + suffix)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	asks := func() (n int) {
		for _, call := range f.stub.Calls() {
			if call.Method == "ContainerStatus" {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		name       string
		size       int
		asked      bool // whether the runtime is asked for the container's status
		files      int
		compressed int
	}{
		{"small", 99, false, 1, 0},
		{"full", 100, true, 2, 0},
		{"full again", 200, true, 3, 1},
		{"one too many", 100, true, 3, 1},
	} {
		if err := os.WriteFile(path, make([]byte, step.size), 0o600); err != nil {
			t.Fatal(err)
		}
		before := asks()
		if err := f.RotateLogs(t.Context(), LogPolicy{MaxSize: 100, MaxFiles: 3}); err != nil {
			t.Fatal(err)
		}
		asked := asks() > before
		if asked != step.asked || files("") != step.files || files(".gz") != step.compressed {
			t.Errorf("%s: asked %t, %d files, %d compressed; want %t, %d, %d",
				step.name, asked, files(""), files(".gz"), step.asked, step.files, step.compressed)
		}
	}
}

// TestRotateLogsThatBelongToTheEngine: links are not rotated.
func TestRotateLogsThatBelongToTheEngine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	if _, err := f.Up(deadline(t), p, set, false); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(f.o.Dirs.PodLogs(p), "a", "0.log")
	engines := filepath.Join(t.TempDir(), "json.log")
	if err := os.WriteFile(engines, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.Symlink(engines, path); err != nil {
		t.Fatal(err)
	}
	if err := f.RotateLogs(t.Context(), LogPolicy{MaxSize: 1, MaxFiles: 2}); err != nil {
		t.Fatal(err)
	}
	if rotated, err := filepath.Glob(path + ".*"); err != nil || len(rotated) > 0 {
		t.Errorf("got %v, %v; want the link as it is", rotated, err)
	}
}

// TestCompressedLogs: the compressed log has every line, and the incomplete file of an interrupted compression is
// removed.
func TestCompressedLogs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	rotated := path + ".20260102-150405"
	const line = "2026-01-02T15:04:05.000000001Z stdout F one\n"
	for file, text := range map[string]string{path: line, rotated: line, rotated + temporarySuffix: "half"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := rotations(path)
	if err != nil || len(files) != 1 {
		t.Fatalf("got %v, %v", files, err)
	}
	if err := compress(files[0]); err != nil {
		t.Fatal(err)
	}
	var lines int
	err = logfile.Read(t.Context(), path, logfile.Options{Tail: -1}, func(e logfile.Entry) error {
		if string(e.Text) == "one\n" {
			lines++
		}
		return nil
	})
	left, globErr := filepath.Glob(path + ".*")
	if err != nil || globErr != nil || lines != 2 || len(left) != 1 || left[0] != rotated+".gz" {
		t.Errorf("got %d lines, %v, files %q, %v", lines, err, left, globErr)
	}
}
