package kuberuntime

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// upSoon fails the test if Up does not end.
func upSoon(t *testing.T, up func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := up(ctx)
	if ctx.Err() != nil {
		t.Fatalf("Up did not end: %v", err)
	}
	return err
}

// TestUpEndsWithPodsThatHaveEnded: Up returns for pods that do not restart, also if the state of some containers does
// not show that.
func TestUpEndsWithPodsThatHaveEnded(t *testing.T) {
	t.Parallel()
	const spec = `
  restartPolicy: Never
  initContainers: [{name: i, image: "busybox:1"}]
  containers: [{name: a, image: "busybox:1"}]
`
	cases := []struct {
		name, spec string
		before     func(f *fixture, sandbox, id string) // changes the first container or its sandbox
		want       string
	}{
		{"the sandbox ends between init and main containers", spec, func(f *fixture, sandbox, id string) {
			f.stub.Exit(id, 0)
			f.stub.StopPod(sandbox)
		}, "the sandbox is not ready"},
		{"an init container is killed for memory and ends with 0", spec, func(f *fixture, _, id string) { f.stub.ExitFor(id, 0, "OOMKilled") },
			"container i ended with status 0 (OOMKilled)"},
		{"an init container fails", spec, func(f *fixture, _, id string) { f.stub.Exit(id, 3) }, "container i ended with status 3"},
		{"a main container fails", `
  restartPolicy: Never
  containers: [{name: i, image: "busybox:1"}]
`, func(f *fixture, _, id string) { f.stub.Exit(id, 4) }, "container i ended with status 4"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			p, set := parse(t, c.spec)
			ctx, stop := context.WithCancel(deadline(t))
			first := make(chan error, 1)
			go func() {
				_, err := f.Up(ctx, p, set, true)
				first <- err
			}()
			id := waitRunning(deadline(t), t, f, p, "i")
			stop()
			<-first
			c.before(f, f.status(t, p).Sandbox().GetId(), id)
			for _, wait := range []bool{true, false} {
				err := upSoon(t, func(ctx context.Context) error {
					_, err := f.Up(ctx, p, set, wait)
					return err
				})
				if !errors.Is(err, ErrPodFailed) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("wait %t: got %v, want a failure with %q", wait, err, c.want)
				}
			}
			status := f.status(t, p)
			if !isDead(status) || status.Container("a") != nil {
				t.Errorf("something is up: %+v", status)
			}
			if view := f.View(p, status); view.Phase != v1.PodFailed {
				t.Errorf("the phase is %s", view.Phase)
			}
		})
	}
}

// TestUpEndsAtTheDeadline: a crashing pod does not restart after its activeDeadlineSeconds.
func TestUpEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	var late atomic.Int64
	f := newFixture(t, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) } })
	p, set := parse(t, `
  activeDeadlineSeconds: 300
  containers: [{name: a, image: "busybox:1"}]`)
	if _, err := f.Up(deadline(t), p, set, false); err != nil {
		t.Fatal(err)
	}
	late.Store(int64(time.Hour))
	err := upSoon(t, func(ctx context.Context) error {
		_, err := f.Up(ctx, p, set, true)
		return err
	})
	if !errors.Is(err, ErrPodFailed) || !strings.Contains(err.Error(), "activeDeadlineSeconds") {
		t.Errorf("got %v", err)
	}
	if status := f.status(t, p); !isDead(status) {
		t.Errorf("something is up: %+v", status)
	}
}

// TestUpEndsWithItsOwnDeadline: the runtime may see the deadline of a call before Up does.
func TestUpEndsWithItsOwnDeadline(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `
  containers: [{name: a, image: "busybox:1"}]`)
	f.stub.Fail("ListPodSandbox", status.Error(codes.DeadlineExceeded, "deadline"))
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("--wait-timeout is over"))
	defer cancel()
	if _, err := f.Up(ctx, p, set, true); err == nil || err.Error() != "--wait-timeout is over" {
		t.Errorf("got %v", err)
	}
}

// TestStartFailureOfSeveral: the error of a crash loop says how its own container ended, not how another one did.
func TestStartFailureOfSeveral(t *testing.T) {
	t.Parallel()
	status := &pod.Status{Containers: []*pod.ContainerStatus{{Name: "a", State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 3}}}
	err := errors.Join(&WaitingError{"a", ErrImagePull}, &WaitingError{"b", ErrCrashLoopBackOff})
	if got := startFailure(err, status); got != err { //nolint:errorlint // the same value
		t.Errorf("got %v, want both errors", got)
	}
}

// TestUpEndsJobsWithSidecars: after the main containers have ended, the sidecars stop in order. Only then the pod has
// succeeded, and nothing keeps running.
func TestUpEndsJobsWithSidecars(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Never", "OnFailure"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			p, set := parse(t, `
  restartPolicy: `+policy+`
  initContainers: [{name: s1, image: "busybox:1", restartPolicy: Always}, {name: s2, image: "busybox:1", restartPolicy: Always}]
  containers: [{name: a, image: "busybox:1"}, {name: b, image: "busybox:1"}]
`)
			ctx := deadline(t)
			f.stub.Before("StopContainer", func(context.Context) {
				if phase := f.View(p, f.status(t, p)).Phase; phase != v1.PodRunning {
					t.Errorf("%s while sidecars run", phase)
				}
			})
			done := make(chan error, 1)
			go func() {
				view, err := f.Up(ctx, p, set, true)
				if err == nil && view.Phase != v1.PodSucceeded {
					t.Errorf("it ended with the pod %s", view.Phase)
				}
				done <- err
			}()
			f.stub.Exit(waitRunning(ctx, t, f, p, "a"), 0)
			f.stub.Exit(waitRunning(ctx, t, f, p, "b"), 0)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			status := f.status(t, p)
			if !isDead(status) {
				t.Errorf("something is up: %+v", status)
			}
			if diff := cmp.Diff([]string{"s2", "s1"}, f.stopped(status)); diff != "" {
				t.Errorf("stopped: %s", diff)
			}
			if reasons := f.reasons(); slices.Contains(reasons, EventSandboxChanged) || !slices.Contains(reasons, EventKilling) {
				t.Errorf("the sandbox was not replaced: got events %q", reasons)
			}
			before := f.changes()
			if view, err := f.Up(ctx, p, set, true); err != nil || view.Phase != v1.PodSucceeded || !slices.Equal(before, f.changes()) {
				t.Errorf("a second Up: got %+v, %v, %v", view, err, f.changes()[len(before):])
			}
		})
	}
}

// jobs is a fixture with its own clock. Tests end its containers one after the other.
type jobs struct {
	*fixture
	later atomic.Int64 // offset of the clock
	last  string       // id of the last container that exit has ended
}

func newJobs(t *testing.T) *jobs {
	t.Helper()
	j := &jobs{}
	j.fixture = newFixture(t, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(time.Duration(j.later.Load())) } })
	return j
}

// exit ends the next container of this name with an exit code, and advances the clock.
func (j *jobs) exit(ctx context.Context, t *testing.T, p *v1.Pod, name string, code int32, later time.Duration) {
	t.Helper()
	id := j.last
	for id == j.last {
		id = waitRunning(ctx, t, j.fixture, p, name)
	}
	j.last = id
	j.stub.Exit(id, code)
	j.later.Add(int64(later))
}

// TestUpWaitsForTheEnd: Up waits for the end of a pod that does not always restart, including the restarts of its
// policy.
func TestUpWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, policy string
		until        WaitUntil
		ends         []int32
		phase        v1.PodPhase
		want         string // text of the error
	}{
		{"Never, well", "Never", UntilDone, []int32{0}, v1.PodSucceeded, ""},
		{"Never, badly", "Never", UntilDone, []int32{4}, v1.PodFailed, "container a ended with status 4"},
		{"OnFailure, at the third try", "OnFailure", UntilDone, []int32{1, 1, 0}, v1.PodSucceeded, ""},
		{"Never, ready", "Never", UntilReady, nil, v1.PodRunning, ""},
		{"OnFailure, ready", "OnFailure", UntilReady, nil, v1.PodRunning, ""},
		{"Always", "Always", UntilDone, nil, v1.PodRunning, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t)
			p, set := parse(t, "  restartPolicy: "+c.policy+"\n  containers: [{name: a, image: \"busybox:1\"}]\n")
			ctx := deadline(t)
			done := make(chan error, 1)
			go func() {
				view, _, err := f.Manager.Up(ctx, p, set, nil, Wait{Until: c.until})
				if view.Phase != c.phase {
					t.Errorf("the pod is %s, want %s", view.Phase, c.phase)
				}
				done <- err
			}()
			for _, code := range c.ends {
				f.exit(ctx, t, p, "a", code, 10*time.Second)
			}
			err := <-done
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrPodFailed) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestUpTakesNoCrashForReady: a container that crashes at once is running for a moment, but does not count as ready.
func TestUpTakesNoCrashForReady(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, "  containers: [{name: a, image: \"busybox:1\"}]\n")
	ctx, stop := context.WithCancelCause(deadline(t))
	var looks atomic.Int32
	f.stub.Before("ContainerStatus", func(ctx context.Context) {
		if looks.Add(1) == 1 {
			return // the first list shows the container running
		}
		list, err := f.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Error(err)
		}
		for _, c := range list.GetContainers() {
			f.stub.Exit(c.GetId(), 5)
		}
	})
	f.o.Events = func(e Event) {
		if e.Reason == eventBackOff {
			stop(errors.New("it crashes"))
		}
	}
	if _, err := f.Up(ctx, p, set, true); err == nil || !strings.HasPrefix(err.Error(), "it crashes") {
		t.Errorf("got %v", err)
	}
}

// TestUpEndsCrashLoops: by default Up gives up after six starts. Without a limit it ends with its context, and the
// error has the reason.
func TestUpEndsCrashLoops(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Always", "OnFailure"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t)
			p, set := parse(t, "  restartPolicy: "+policy+"\n  containers: [{name: a, image: \"busybox:1\", readinessProbe: {exec: {command: [\"false\"]}}}]\n")
			ctx := deadline(t)
			done := make(chan error, 1)
			go func() {
				_, err := f.Up(ctx, p, set, true)
				done <- err
			}()
			for _, wait := range []time.Duration{0, 10, 20, 40, 80, 0} {
				f.exit(ctx, t, p, "a", 3, wait*time.Second)
			}
			err := <-done
			if !errors.Is(err, ErrCrashLoopBackOff) || !strings.Contains(err.Error(), "container a ended with status 3") {
				t.Errorf("got %v", err)
			}
			limited, cancel := context.WithCancelCause(ctx)
			var looks atomic.Int32
			f.stub.Before("ListPodSandbox", func(context.Context) {
				if looks.Add(1) == 3 { // by then Up has recorded why it waits
					cancel(errors.New("no time left"))
				}
			})
			if _, _, err := f.Manager.Up(limited, p, set, f.listed(ctx, p), Wait{Until: UntilDone}); !errors.Is(err, ErrCrashLoopBackOff) || !strings.HasPrefix(err.Error(), "no time left: CrashLoopBackOff: container a ended with status 3") {
				t.Errorf("without a limit: got %v", err)
			}
		})
	}
}

// TestUpEndsJobsAtTheirLimit: a Job's pod fails for good at its backoffLimit, which replaces the limit of a crash loop.
func TestUpEndsJobsAtTheirLimit(t *testing.T) {
	t.Parallel()
	f := newJobs(t)
	p, set := parse(t, "  restartPolicy: OnFailure\n  containers: [{name: a, image: \"busybox:1\"}]\n")
	p.Annotations = map[string]string{pod.BackoffLimitAnnotation: "7"}
	ctx := deadline(t)
	done := make(chan error, 1)
	go func() {
		_, err := f.Up(ctx, p, set, true)
		done <- err
	}()
	for _, wait := range []time.Duration{0, 10, 20, 40, 80, 160, 300, 0} {
		f.exit(ctx, t, p, "a", 3, wait*time.Second)
	}
	const why = "its containers failed more often than the backoffLimit of 7, container a ended with status 3"
	if err := <-done; !errors.Is(err, ErrPodFailed) || !strings.HasSuffix(err.Error(), why) {
		t.Errorf("got %v", err)
	}
	before := f.changes()
	if _, err := f.Up(ctx, p, set, true); !errors.Is(err, ErrPodFailed) || !slices.Equal(before, f.changes()) {
		t.Errorf("a second Up: got %v, %v", err, f.changes()[len(before):])
	}
	status := f.status(t, p)
	if s := f.APIPod(p, f.View(p, status), status).Status; !isDead(status) || s.Phase != v1.PodFailed || s.Reason != plan.BackoffLimitExceeded || s.Message != why {
		t.Errorf("got %s, %s, %s", s.Phase, s.Reason, s.Message)
	}
}
