package shim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/internal/rundir"
	"github.com/crishim/crishim/internal/test"
)

// deadDir is a directory as a killed command leaves it.
func deadDir(t *testing.T, base string) string {
	t.Helper()
	dir := filepath.Join(base, "shim-0123456789abcdef")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestSweepRemovesWhatAKilledCommandLeaves: all that is ever in a directory of a command.
func TestSweepRemovesWhatAKilledCommandLeaves(t *testing.T) {
	base := test.SocketDir(t)
	dir := deadDir(t, base)
	record := strings.Repeat("ab", 32) + ".json"
	for _, name := range []string{socketName, "exec/" + record, "exec/" + record + ".new", "containers/123"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sweep(t.Context(), base, "", nil, &somePod{})
	if left, err := os.ReadDir(base); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestSweepLeavesWhatItDidNotMake: what stands where commands have their directories, and
// what is in one of these directories under another name than crishim's own.
func TestSweepLeavesWhatItDidNotMake(t *testing.T) {
	base := test.SocketDir(t)
	dir := deadDir(t, base)
	kept := []string{
		filepath.Join(base, "crishim-1.2.0", "src", "main.go"),
		filepath.Join(dir, "src", "main.go"),
		filepath.Join(dir, "exec", "notes.json"),
		filepath.Join(dir, "containers", "mine"),
	}
	for _, path := range kept {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sweep(t.Context(), base, "", nil, &somePod{})
	for _, path := range kept {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

// TestRunDirIsPrivateWhateverTheUmask: nobody else may look into the directory of a
// command, nor connect to its socket.
func TestRunDirIsPrivateWhateverTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o22, 0o77} {
		old := syscall.Umask(mask)
		dir, err := rundir.New(test.SocketDir(t), shimDirs)
		if err != nil {
			t.Fatal(err)
		}
		socket := filepath.Join(dir.Path, socketName)
		l, err := listenPrivate(socket)
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]os.FileMode{dir.Path: 0o700, socket: 0o600} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("umask %03o: %s: got %v, %v, want %o", mask, path, info.Mode(), err, want)
			}
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		if err := dir.Remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(dir.Path); !os.IsNotExist(err) {
			t.Errorf("got %v, want the directory gone", err)
		}
	}
}

// somePod has containers that can be listed and removed.
type somePod struct {
	containers []*runtimeapi.Container
	removed    []string
	broken     bool
	owners     []string
}

func (p *somePod) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	if p.broken {
		return nil, errors.New("the engine is away")
	}
	return &runtimeapi.ListContainersResponse{Containers: p.containers}, nil
}

func (p *somePod) RemoveContainer(_ context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	p.removed = append(p.removed, r.GetContainerId())
	return nil, nil
}

func TestSweepOfTemporaryContainers(t *testing.T) {
	made := func(name string, temporary bool) *runtimeapi.Container {
		c := &runtimeapi.Container{Id: "id-of-" + name, Metadata: &runtimeapi.ContainerMetadata{Name: name}}
		if temporary {
			c.Annotations = map[string]string{api.AnnotationTemporary: "true"}
		}
		return c
	}
	pod := &somePod{containers: []*runtimeapi.Container{made("debug-a", true), made("debug-b", true), made("debug-c", false)}}
	base := test.SocketDir(t)
	dir := deadDir(t, base)
	left := temporaries{dir: filepath.Join(dir, temporaryName), engine: "unix:///here"}
	if err := errors.Join(left.note("pod", "debug-a"), left.note("pod", "debug-c"), left.note("pod", "never-made")); err != nil {
		t.Fatal(err)
	}
	there := func() bool { _, err := os.Stat(dir); return err == nil }

	sweep(t.Context(), base, "unix:///elsewhere", nil, pod)
	if !there() || pod.removed != nil {
		t.Errorf("with another engine: got %v removed, directory there: %v", pod.removed, there())
	}
	pod.broken = true
	sweep(t.Context(), base, "unix:///here", nil, pod)
	if !there() {
		t.Error("with an engine that is away: the directory is gone")
	}
	pod.broken = false
	sweep(t.Context(), base, "unix:///here", nil, pod)
	if len(pod.owners) != 3 || pod.owners[0] != filepath.Base(dir) {
		t.Errorf("helpers were looked for of %v", pod.owners)
	}
	if diff := cmp.Diff([]string{"id-of-debug-a"}, pod.removed); diff != "" || there() {
		t.Errorf("removed (-want +got):\n%s\ndirectory there: %v", diff, there())
	}
}

// RemoveHelpers notes whose it was asked for.
func (p *somePod) RemoveHelpers(_ context.Context, owner string) error {
	p.owners = append(p.owners, owner)
	return nil
}
