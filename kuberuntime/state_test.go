package kuberuntime

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// state waits until a pod's state is as wanted.
func (f *fixture) state(t *testing.T, uid string, done func(*PodState) bool) *PodState {
	t.Helper()
	ctx := deadline(t)
	for {
		s, err := ReadState(f.o.Dirs, uid)
		if err != nil {
			t.Fatal(err)
		}
		if s != nil && done(s) {
			return s
		}
		if err := f.pause(ctx, 10*time.Millisecond); err != nil {
			t.Fatalf("the state is %+v", s)
		}
	}
}

// TestStateOfProbes: another process sees the results of a pod's probes for as long as they are made.
func TestStateOfProbes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	flag := filepath.Join(t.TempDir(), "ready")
	p, set := parse(t, `
  containers:
  - {name: a, image: "busybox:1", readinessProbe: {exec: {command: [sh, -c, "test -e `+flag+`"]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1}}
  - {name: b, image: "busybox:1"}`)
	done := make(chan error, 1)
	go func() {
		_, err := f.Manager.Up(deadline(t), p, set, Wait{Until: UntilReady})
		done <- err
	}()
	s := f.state(t, "u1", func(s *PodState) bool { return s.Container("b") != nil && s.Container("b").Ready })
	if a := s.Container("a"); !s.Kept || s.Ready || a.Ready || !a.Probed || a.ID == "" || a.Waiting != "" {
		t.Errorf("with a probe that fails got %+v", s)
	}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s = f.state(t, "u1", func(*PodState) bool { return true })
	if s.Kept || s.Ready || s.Container("a").Ready || s.Sandbox != f.status(t, p).Sandbox().GetId() {
		t.Errorf("when nobody probes any more got %+v", s)
	}
	if s, err := ReadState(f.o.Dirs, "u2"); s != nil || err != nil {
		t.Errorf("of an unknown pod got %+v, %v", s, err)
	}
}

// TestStateOfWaiting: a container in its back-off waits with its reason, until it is started.
func TestStateOfWaiting(t *testing.T) {
	t.Parallel()
	at := time.Now()
	f := newFixture(t, func(o *Options) { o.Now = func() time.Time { return at } })
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}, {name: b, image: none, imagePullPolicy: Never}]`)
	step := func() {
		status := f.status(t, p)
		f.keep(deadline(t), p, status, nil)
		result := f.SyncPod(deadline(t), p, set, status)
		f.keep(deadline(t), p, status, &result)
	}
	step()
	s := f.state(t, "u1", func(*PodState) bool { return true })
	want := []ContainerState{{Name: "a"}, {Name: "b", Waiting: "ErrImageNeverPull", Message: "image none is not present and its policy is Never"}}
	if diff := cmp.Diff(want, s.Containers); diff != "" || !s.Kept {
		t.Errorf("after the first step: %s", diff)
	}
	f.stub.Exit(f.status(t, p).Container("a").ID, 1)
	step() // starts it again
	at = at.Add(time.Second)
	f.stub.Exit(f.status(t, p).Container("a").ID, 1)
	step() // waits
	a := f.state(t, "u1", func(*PodState) bool { return true }).Container("a")
	wantA := &ContainerState{Name: "a", Restarts: 1, Waiting: "CrashLoopBackOff", Message: "back-off 10s restarting failed container a", NextTry: at.Add(10 * time.Second)}
	if diff := cmp.Diff(wantA, a, cmpopts.IgnoreFields(ContainerState{}, "ID"), cmpopts.EquateApproxTime(time.Millisecond)); diff != "" {
		t.Error(diff)
	}
	at = at.Add(11 * time.Second)
	step() // starts it
	step()
	if a := f.state(t, "u1", func(*PodState) bool { return true }).Container("a"); a.Waiting != "" || !a.Ready || a.Restarts != 2 {
		t.Errorf("started again, got %+v", a)
	}
	f.closeState("u1")
	s = f.state(t, "u1", func(*PodState) bool { return true })
	if b := s.Container("b"); s.Kept || b.Waiting != "ErrImageNeverPull" {
		t.Errorf("when nobody keeps it got %+v", s)
	}
}

// TestHostileStateFiles: what a container that was given the pod's folder puts there is not waited for, not followed, and
// not read without an end.
func TestHostileStateFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	folder := f.o.Dirs.Pod("u1")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	file, outside := stateFile(f.o.Dirs, "u1", "r"), filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(file, []byte(`{"phase":"Running"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, put := range map[string]func(path string) error{
		"a pipe":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a link":   func(path string) error { return os.Symlink(outside, path) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		lock, record := lockOfState(file), recordPath(f.o.Dirs, "u1")
		if err := errors.Join(put(lock), put(record)); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if s, err := ReadState(f.o.Dirs, "u1"); err != nil || s == nil || s.Kept {
				t.Errorf("%s as lock: got %+v, %v", what, s, err)
			}
			if held, err := lockState(lock); err == nil {
				t.Errorf("%s is taken as lock: %v", what, held.Close())
			}
			if r, err := readRecord(f.o.Dirs, "u1"); err == nil {
				t.Errorf("%s is read as record: %v", what, r)
			}
		}()
		select {
		case <-done:
		case <-deadline(t).Done():
			t.Fatalf("%s is waited for", what)
		}
		if err := errors.Join(os.Remove(lock), os.Remove(record)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(outside); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a link was followed: %v", err)
	}
}
