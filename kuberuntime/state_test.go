package kuberuntime

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
	f.letGo("u1")
	s = f.state(t, "u1", func(*PodState) bool { return true })
	if b := s.Container("b"); s.Kept || b.Waiting != "ErrImageNeverPull" {
		t.Errorf("when nobody keeps it got %+v", s)
	}
}
