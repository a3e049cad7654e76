package kuberuntime

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// atOnce fails the test if call blocks.
func atOnce(t *testing.T, what string, call func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second): // less than the 45 s after which the kernel breaks a lease
		t.Fatalf("%s: still waiting", what)
	}
}

// TestHostsFileOfAHostileContainer: the hosts file is rewritten in place after a container has changed its size and
// mode. A lease is an error. So are a link and a pipe, which a container cannot create there. No error blocks.
func TestHostsFileOfAHostileContainer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "etc-hosts")
	write := func(text string) error { return writeHostsFile(path, text) }
	if err := write("127.0.0.1 localhost\n"); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4<<40); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := write("10.0.0.1 web\n"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != "10.0.0.1 web\n" {
		t.Errorf("got %q, %v", text, err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) || after.Mode() != 0o644 {
		t.Errorf("got %v, %v, want the file that is mounted, with its mode", after, err)
	}

	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		t.Fatal(err)
	}
	atOnce(t, "a lease", func() {
		if err := write("10.0.0.2 web\n"); err == nil {
			t.Error("wrote a file on which a container has a lease")
		}
	})
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		t.Fatal(err)
	}

	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, put := range map[string]func() error{
		"a link": func() error { return os.Symlink(victim, path) },
		"a pipe": func() error { return unix.Mkfifo(path, 0o600) },
	} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		atOnce(t, what, func() {
			if err := write("10.0.0.2 web\n"); err == nil {
				t.Errorf("wrote to %s", what)
			}
		})
	}
	if text, err := os.ReadFile(victim); err != nil || len(text) > 0 {
		t.Errorf("wrote %q into the link's target, %v", text, err)
	}
}

// TestMessagesOfAHostileContainer: a container has replaced its message file or log with a link, a pipe, a huge file or
// a directory.
func TestMessagesOfAHostileContainer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret, huge, pipe, link := filepath.Join(dir, "secret"), filepath.Join(dir, "huge"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := os.WriteFile(secret, []byte("of the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 4<<40); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		message, log string
		want         int
	}{
		"a link": {link, "", 0}, "a pipe": {pipe, "", 0}, "a pipe as log": {"", pipe, 0}, "a huge file": {huge, "", maxMessage}, "a huge log": {"", huge, 0}, "a directory": {dir, dir, 0},
	} {
		atOnce(t, what, func() {
			got := terminationMessage(&pod.ContainerStatus{
				ExitCode: 1, LogPath: c.log, Mounts: []*runtimeapi.Mount{{ContainerPath: "/m", HostPath: c.message}},
				Annotations: map[string]string{pod.MessagePathAnnotation: "/m", pod.MessagePolicyAnnotation: string(v1.TerminationMessageFallbackToLogsOnError)},
			}, "")
			if len(got) != c.want {
				t.Errorf("%s: got %q, want %d bytes", what, got, c.want)
			}
		})
	}
}
