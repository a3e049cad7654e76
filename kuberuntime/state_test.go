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

	"github.com/crishim/crishim/internal/filelock"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// state waits until done returns true for a pod's state.
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

// TestStateOfProbes: another process sees the results of a pod's probes while the probes run.
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
		_, _, err := f.Manager.Up(deadline(t), p, set, nil, Wait{Until: UntilReady})
		done <- err
	}()
	s := f.state(t, "u1", func(s *PodState) bool { return s.Container("b") != nil && s.Container("b").Ready })
	if a := s.Container("a"); !s.Managed || s.Ready || a.Ready || !a.Probed || a.ID == "" || a.Waiting != "" {
		t.Errorf("with a probe that fails got %+v", s)
	}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s = f.state(t, "u1", func(*PodState) bool { return true })
	if s.Managed || s.Ready || s.Container("a").Ready || s.Sandbox != f.status(t, p).Sandbox().GetId() {
		t.Errorf("when nobody probes any more got %+v", s)
	}
	if s, err := ReadState(f.o.Dirs, "u2"); s != nil || err != nil {
		t.Errorf("of an unknown pod got %+v, %v", s, err)
	}
}

// TestStateOfWaiting: the state of a container in its back-off has the reason until the container starts.
func TestStateOfWaiting(t *testing.T) {
	t.Parallel()
	at := time.Now()
	f := newFixture(t, func(o *Options) { o.Now = func() time.Time { return at } })
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}, {name: b, image: none, imagePullPolicy: Never}]`)
	step := func() {
		status := f.status(t, p)
		f.recordState(deadline(t), p, status, nil)
		result := f.SyncPod(deadline(t), p, set, status)
		f.recordState(deadline(t), p, status, &result)
	}
	step()
	s := f.state(t, "u1", func(*PodState) bool { return true })
	want := []ContainerState{{Name: "a"}, {Name: "b", Waiting: "ErrImageNeverPull", Message: "image none is not present and its policy is Never"}}
	if diff := cmp.Diff(want, s.Containers); diff != "" || !s.Managed {
		t.Errorf("after the first step: %s", diff)
	}
	f.stub.Exit(f.status(t, p).Container("a").ID, 1)
	step() // restarts a
	at = at.Add(time.Second)
	f.stub.Exit(f.status(t, p).Container("a").ID, 1)
	step() // a is in its back-off
	a := f.state(t, "u1", func(*PodState) bool { return true }).Container("a")
	wantA := &ContainerState{Name: "a", Restarts: 1, ExitCode: new(1), Waiting: "CrashLoopBackOff", Message: "back-off 10s restarting failed container a", NextTry: at.Add(10 * time.Second)}
	if diff := cmp.Diff(wantA, a, cmpopts.IgnoreFields(ContainerState{}, "ID", "Sandbox", "StartedAt"), cmpopts.EquateApproxTime(time.Millisecond)); diff != "" {
		t.Error(diff)
	}
	at = at.Add(11 * time.Second)
	step() // starts a
	step()
	if a := f.state(t, "u1", func(*PodState) bool { return true }).Container("a"); a.Waiting != "" || !a.Ready || a.Restarts != 2 {
		t.Errorf("started again, got %+v", a)
	}
	f.closeState("u1")
	s = f.state(t, "u1", func(*PodState) bool { return true })
	if b := s.Container("b"); s.Managed || b.Waiting != "ErrImageNeverPull" {
		t.Errorf("when nobody keeps it got %+v", s)
	}
}

// TestHostileStateFiles: a container has access to the pod's directory and replaces state files. Reading does not
// block, does not follow links, and has a size limit.
func TestHostileStateFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	directory := f.o.Dirs.Pod("u1")
	if err := os.MkdirAll(directory, 0o750); err != nil {
		t.Fatal(err)
	}
	file, outside := stateFile(f.o.Dirs, "u1", "r"), filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(file, []byte(`{"phase":"Running"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, put := range map[string]func(path string) error{
		"a pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a link":      func(path string) error { return os.Symlink(outside, path) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a device":    func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		lock, record, events := stateLockPath(file), recordPath(f.o.Dirs, "u1"), eventFiles(f.o.Dirs.Pod("u1"), "events")
		second := stateFile(f.o.Dirs, "u1", "another")
		if err := errors.Join(put(lock), put(record), put(second), put(events[0]), put(events[1])); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if s, err := ReadState(f.o.Dirs, "u1"); err != nil || s == nil || s.Managed {
				t.Errorf("%s as lock: got %+v, %v", what, s, err)
			}
			if held, err := filelock.Try(lock); err == nil {
				t.Errorf("%s is taken as lock: %v", what, held.Release())
			}
			if r, err := readRecord(f.o.Dirs, "u1"); err == nil {
				t.Errorf("%s is read as record: %v", what, r)
			}
			if err := AppendEvent(f.o.Dirs, Event{UID: "u1"}); err == nil {
				t.Errorf("an event is written to %s", what)
			}
			if e, err := podEvents(f.o.Dirs, "u1"); err == nil {
				t.Errorf("events are read from %s: %v", what, e)
			}
		}()
		select {
		case <-done:
		case <-deadline(t).Done():
			t.Fatalf("%s is waited for", what)
		}
		if err := errors.Join(os.Remove(lock), os.Remove(record), os.Remove(second), os.Remove(events[0]), os.Remove(events[1])); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(outside); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a link was followed: %v", err)
	}
}

// Removing a pod removes its state files, also if a container has replaced them with directories.
func TestStateFilesThatAreDirectoriesAreRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := newFixture(t, func(o *Options) { o.Dirs, o.Endpoint = f.o.Dirs, "other" })
	p, _ := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	ctx := deadline(t)
	if err := errors.Join(f.recordPod(ctx, p, &pod.Status{}), other.recordPod(ctx, p, &pod.Status{})); err != nil {
		t.Fatal(err)
	}
	file := stateFile(f.o.Dirs, "u1", "stub")
	for _, path := range []string{file, stateLockPath(file)} {
		if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.removeDirs(ctx, "u1"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, stateLockPath(file)} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(stateFile(f.o.Dirs, "u1", "other"), "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := other.removeDirs(ctx, "u1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(f.o.Dirs.Pod("u1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}

// A runtime with a socket at two paths has two state files of a pod. ReadState returns the locked state, or else the
// newest, and ignores damaged files.
func TestTheNewestStateOfARuntimeIsRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := os.MkdirAll(f.o.Dirs.Pod("u1"), 0o750); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	var files []string
	for i, phase := range []string{"Pending", "Running", "Failed"} {
		file := stateFile(f.o.Dirs, "u1", phase)
		files = append(files, file)
		if err := os.WriteFile(file, []byte(`{"sandbox":"s","phase":"`+phase+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, now, now.Add(time.Duration(i%2)*time.Hour)); err != nil { // Running is the newest state
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(stateFile(f.o.Dirs, "u1", "damaged"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := ReadState(f.o.Dirs, "u1", "s"); err != nil || s == nil || s.Phase != "Running" {
		t.Errorf("got %+v, %v, want the newest", s, err)
	}
	held, err := filelock.Try(stateLockPath(files[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Release() }()
	if s, err := ReadState(f.o.Dirs, "u1", "s"); err != nil || s == nil || s.Phase != "Pending" || !s.Managed {
		t.Errorf("got %+v, %v, want the one that is kept", s, err)
	}
}

// A record of another pod, or with names that escape the directory, is ignored: logs are removed by its names.
func TestRecordsOfOtherPodsAreNone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := os.MkdirAll(f.o.Dirs.Pod("u1"), 0o750); err != nil {
		t.Fatal(err)
	}
	for _, metadata := range []string{`{"name":"web","namespace":"default","uid":"u2"}`, `{"name":"web","namespace":"../../x","uid":"u1"}`, `{"name":"a/../../../x","uid":"u1"}`, `{"uid":"u1"}`} {
		if err := os.WriteFile(recordPath(f.o.Dirs, "u1"), []byte(`{"runtimes":{"stub":{"endpoint":"stub"}},"pod":{"metadata":`+metadata+`}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := f.Record("u1"); !errors.Is(err, errNoRecord) {
			t.Errorf("%s: got %+v, %v", metadata, r, err)
		}
	}
}
