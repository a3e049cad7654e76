package kuberuntime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/pod"
)

func TestTerminationMessage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	message, log := filepath.Join(dir, "message"), filepath.Join(dir, "0.log")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(log, "2026-01-02T03:04:05.000000001Z stdout F first\n"+`{"log":"second\n","stream":"stderr","time":"2026-01-02T03:04:05Z"}`+"\n")
	container := func(exit int, policy v1.TerminationMessagePolicy) *pod.ContainerStatus {
		return &pod.ContainerStatus{
			State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: exit, LogPath: log,
			Annotations: map[string]string{pod.MessagePathAnnotation: "/dev/termination-log", pod.MessagePolicyAnnotation: string(policy)},
			Mounts:      []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: message}},
		}
	}
	cases := []struct {
		name, file, runtime string
		exit                int
		policy              v1.TerminationMessagePolicy
		want                string
	}{
		{"file", "done", "", 0, v1.TerminationMessageReadFile, "done"},
		{"runtime's own too", "done", "killed", 1, v1.TerminationMessageReadFile, "killed: done"},
		{"empty", "", "", 1, v1.TerminationMessageReadFile, ""},
		{"log of a failure", "", "", 1, v1.TerminationMessageFallbackToLogsOnError, "first\nsecond"},
		{"no log of a success", "", "", 0, v1.TerminationMessageFallbackToLogsOnError, ""},
		{"file before log", "said", "", 1, v1.TerminationMessageFallbackToLogsOnError, "said"},
		{"long", strings.Repeat("x", 5000), "", 1, v1.TerminationMessageReadFile, strings.Repeat("x", maxMessage)},
	}
	for _, c := range cases {
		write(message, c.file)
		if diff := cmp.Diff(c.want, terminationMessage(container(c.exit, c.policy), c.runtime)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := newBackoff()
	now := time.Unix(1000, 0)
	if got, _, _ := b.wait("k", now, now); got != 0 {
		t.Error("waits before the first failure")
	}
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 300 * time.Second, 300 * time.Second} {
		b.next("k", now, now)
		if got, _, news := b.wait("k", now, now); got != want || !news {
			t.Errorf("got %s, %v, want %s and that it is news", got, news, want)
		}
		if _, _, news := b.wait("k", now, now.Add(time.Second)); news {
			t.Error("the same wait is news twice")
		}
		now = now.Add(want)
	}
	if got, _, _ := b.wait("k", now.Add(-time.Hour), now); got != 0 {
		t.Error("waits for a failure long past")
	}
	later := now.Add(2*backoffMax + time.Second)
	b.next("k", later, later)
	if got, _, _ := b.wait("k", later, later); got != backoffInitial {
		t.Errorf("after a long quiet time: got %s", got)
	}
	b.collect(later.Add(time.Hour))
	if len(b.entries) != 0 {
		t.Error("old entries are kept")
	}
}

func TestNextLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := nextLog(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("got %d for no directory", got)
	}
	for _, name := range []string{"0.log", "2.log", "3.log.20260102-030405", "x.log", "7.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := nextLog(dir); got != 4 {
		t.Errorf("got %d, want 4", got)
	}
}

func TestLegacyLogNameFits(t *testing.T) {
	t.Parallel()
	name := legacyLogName(strings.Repeat("p", 200), "ns", "c", strings.Repeat("f", 64))
	if len(name) != 255 || !strings.HasSuffix(name, ".log") {
		t.Errorf("got %d bytes: %s", len(name), name)
	}
}
