package kuberuntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/volume"
)

// poll is the interval at which Up checks a waiting pod.
const poll = 200 * time.Millisecond

// minReady is how long a container without a readiness probe must run before it counts as ready. A container may crash
// right after its start.
const minReady = 500 * time.Millisecond

// ErrPodFailed is the error of a pod that has failed and does not restart.
var ErrPodFailed = errors.New("the pod has failed")

type WaitUntil int

const (
	UntilStarted WaitUntil = iota // every container was started once
	UntilReady                    // the pod is ready, or has succeeded
	UntilDone                     // the pod has ended if its restart policy allows that, else it is ready
)

type Wait struct {
	Until WaitUntil
	// MaxBackOff is the longest back-off of a crashed container that Up accepts, 0 for no limit. Without a limit, a
	// crash loop never ends.
	MaxBackOff time.Duration
}

// DefaultMaxBackOff ends a crash loop after six starts, like the default backoffLimit of a Job.
const DefaultMaxBackOff = 2 * time.Minute

// Up starts a pod and waits for the condition in w. It returns an error as soon as the condition cannot be reached. A
// further call continues with the existing containers. listed is the pod from a recent list, nil if the runtime does
// not have it. The returned view is computed from the returned status.
func (m *Manager) Up(ctx context.Context, p *v1.Pod, set *manifest.Set, listed *pod.Pod, w Wait) (*plan.View, *pod.Status, error) {
	listed = cmp.Or(listed, &pod.Pod{UID: string(p.UID), Name: p.Name, Namespace: p.Namespace})
	defer m.prober.Keep(string(p.UID), nil)
	defer m.closeState(string(p.UID)) // runs before Keep, because a state that is written after Keep lacks the results of probes
	ended := ""                       // why the last step stopped the pod for good
	var waits error                   // the reason why the last step waits
	current, err := m.StatusOf(ctx, listed)
	for first := true; ; first = false {
		if !first {
			current, err = m.GetPodStatus(ctx, string(p.UID), p.Name, p.Namespace)
		}
		if err == nil {
			err = m.recall(ctx, p, current)
		}
		if err != nil {
			return nil, nil, waitError(ctx, err, waits)
		}
		m.WatchProbes(p, current)
		m.reportEnds(p, current)
		view := m.View(p, current)
		m.recordState(ctx, p, current, nil) // after View, so that the state is not older than the view
		// Up is never done before its first step, which may replace running containers.
		if !first {
			if done, err := isUp(p, view, current, w.Until, ended); done || err != nil {
				return view, current, err
			}
		}
		result := m.SyncPod(ctx, p, set, current)
		m.recordState(ctx, p, current, &result)
		if result.givesUp(p, w) {
			return view, current, waitError(ctx, startFailure(result.Err, current), waits)
		}
		if result.Err == nil && result.Actions.KillPod && !result.Actions.CreateSandbox {
			ended = result.Actions.SandboxReason
		}
		if first || result.Err == nil && !result.Actions.Nothing() {
			continue
		}
		waits = cmp.Or(startFailure(result.Err, current), notYet(p, view, w.Until))
		if err := m.pause(ctx, string(p.UID)); err != nil {
			return view, current, waitError(ctx, err, waits)
		}
	}
}

// givesUp reports whether Up returns the failure of a step instead of retrying the step, because the pause before the
// next try is longer than MaxBackOff or the failure is no reason for a retry. A Job's pod has backoffLimit in place of
// MaxBackOff.
func (r *SyncResult) givesUp(p *v1.Pod, w Wait) bool {
	_, limited := plan.BackoffLimit(p)
	return r.Err != nil && (w.Until == UntilStarted || !r.onlyBackOff() || !limited && r.backsOffLonger(w.MaxBackOff))
}

// waitError returns err. If ctx has ended, it returns the cause and the reason why Up waited instead.
func waitError(ctx context.Context, err, waits error) error {
	// The runtime may see the deadline of a call shortly before ctx ends.
	if at, ok := ctx.Deadline(); ok && status.Code(err) == codes.DeadlineExceeded && time.Until(at) < time.Second {
		<-ctx.Done()
	}
	switch {
	case ctx.Err() == nil:
		return err
	case waits == nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), waits)
}

// isUp reports whether Up is done. An ended pod is done only after its sandbox and sidecars have stopped. ended is the
// reason why the plan stopped the pod.
func isUp(p *v1.Pod, view *plan.View, status *pod.Status, until WaitUntil, ended string) (bool, error) {
	over := view.Phase == v1.PodFailed || view.Phase == v1.PodSucceeded
	switch {
	case over && ended == "" && !isDead(status):
		return false, nil
	case view.Phase == v1.PodSucceeded:
		return true, nil
	case over, ended != "":
		return false, fmt.Errorf("%w: %s", ErrPodFailed, cmp.Or(whatFailed(view), ended))
	case slices.ContainsFunc(view.Containers, func(c plan.ContainerView) bool { return c.Ephemeral && c.Status == nil }):
		return false, nil // ephemeral containers start one step after the others
	case until == UntilStarted:
		return view.Started, nil
	case until == UntilDone && plan.MeantToEnd(p):
		return false, nil
	}
	return IsReady(view, status), nil
}

// IsReady reports whether a pod is ready, and its containers without a readiness probe have run for minReady.
func IsReady(view *plan.View, status *pod.Status) bool {
	young := func(c plan.ContainerView) bool {
		if c.Init || c.Ephemeral || c.Container.ReadinessProbe != nil || c.Status == nil {
			return false
		}
		age := status.At.Sub(c.Status.StartedAt) // negative if the clock was set back
		return age >= 0 && age < minReady
	}
	return view.Ready && !slices.ContainsFunc(view.Containers, young)
}

// notYet returns an error that names the containers for which Up waits.
func notYet(p *v1.Pod, view *plan.View, until WaitUntil) error {
	what, waited := "not ready", func(c plan.ContainerView) bool { return !c.Ready }
	if until == UntilDone && plan.MeantToEnd(p) {
		what, waited = "not at its end", func(c plan.ContainerView) bool { return !c.Sidecar && !c.Status.Exited() }
	}
	var names []string
	for _, c := range view.Containers {
		if !c.Ephemeral && waited(c) {
			names = append(names, fmt.Sprintf("container %s is %s", c.Container.Name, what))
		}
	}
	return errors.New(strings.Join(names, ", "))
}

func whatFailed(view *plan.View) string {
	if view.Why != "" {
		return view.Why
	}
	var out []string
	for _, c := range view.Containers {
		if c.Status.Exited() && !c.Sidecar && !c.Status.Succeeded() {
			out = append(out, describeEnd(c.Status))
		}
	}
	return strings.Join(out, ", ")
}

func describeEnd(c *pod.ContainerStatus) string {
	text := fmt.Sprintf("container %s ended with status %d", c.Name, c.ExitCode)
	if c.Reason == pod.OOMKilled {
		text += " (" + pod.OOMKilled + ")"
	}
	if message := OneLine(c.Message); message != "" {
		text += ": " + message
	}
	return text
}

// OneLine joins the lines of a termination message.
func OneLine(message string) string {
	return strings.ReplaceAll(strings.TrimSpace(message), "\n", "; ")
}

// startFailure replaces the error of a crash loop by an error that describes how the container ended. Other errors stay
// unchanged.
func startFailure(err error, status *pod.Status) error {
	if waiting, ok := errors.AsType[*WaitingError](err); ok && errors.Is(waiting, ErrCrashLoopBackOff) {
		if c := status.Container(waiting.Container); c.Exited() {
			return fmt.Errorf("%w: %s", ErrCrashLoopBackOff, describeEnd(c))
		}
	}
	return err
}

// pause waits for poll, or until a probe of the pod has a new result.
func (m *Manager) pause(ctx context.Context, uid string) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-m.probed(uid):
	case <-time.After(poll):
	}
	return nil
}

// RemoveReplaced removes pods of the same name that apply created from an earlier manifest. It reports whether it
// removed a pod, and returns the existing pod with the UID of p, or nil.
func (m *Manager) RemoveReplaced(ctx context.Context, p *v1.Pod) (replaced bool, listed *pod.Pod, err error) {
	pods, err := m.GetPods(ctx, true)
	if err != nil {
		return false, nil, err
	}
	var old []*pod.Pod
	for _, other := range pods {
		if other.FullName() != FullName(p) {
			continue
		}
		owner := m.OwnerOf(ctx, other)
		switch {
		case other.UID == string(p.UID):
			listed = other
		case owner.Apply:
			old = append(old, other)
		case owner.Dir != "" || isRunning(other):
			return false, nil, &foreignPodError{Name: other.FullName(), UID: other.UID, Owner: owner}
		}
	}
	for _, other := range old {
		m.event(p, "", EventKilling, "the manifest has changed: the pod is replaced")
		status, err := m.StatusOf(ctx, other)
		if err != nil {
			return false, nil, err
		}
		if err := m.Remove(ctx, nil, status, nil); err != nil {
			return false, nil, fmt.Errorf("replace pod %s: %w", other.FullName(), err)
		}
	}
	return len(old) > 0, listed, nil
}

// Requests returns the requests that create a pod, for display. Values from Secrets are masked. Facts of a running pod,
// such as its address, are omitted.
func Requests(p *v1.Pod, set *manifest.Set, host criconfig.Host, dirs pod.Dirs) (*runtimeapi.RunPodSandboxRequest, []*runtimeapi.CreateContainerRequest, error) {
	masked := *set
	masked.Secrets = map[string]*v1.Secret{}
	for name, secret := range set.Secrets {
		data := maps.Clone(secret.Data)
		for key := range data {
			data[key] = []byte("********")
		}
		masked.Secrets[name] = &v1.Secret{Data: data}
	}
	g := &criconfig.Generator{Host: host, Dirs: dirs}
	run := &runtimeapi.RunPodSandboxRequest{Config: g.Sandbox(p, 0)}
	if name := p.Spec.RuntimeClassName; name != nil {
		run.RuntimeHandler = masked.RuntimeClasses[*name].Handler
	}
	made := (&volume.Maker{Dirs: dirs, Host: host}).Plan(p)
	var creates []*runtimeapi.CreateContainerRequest
	for _, c := range manifest.Containers(p) {
		mounts := volume.PlanMounts(c, made)
		mounts = append(mounts,
			&runtimeapi.Mount{ContainerPath: "/etc/hosts", HostPath: dirs.Hosts(string(p.UID))},
			&runtimeapi.Mount{ContainerPath: c.TerminationMessagePath, HostPath: filepath.Join(dirs.Container(string(p.UID), c.Name), "00000000")})
		env, err := criconfig.Env(p, c, &masked, host, nil, nil)
		if err != nil {
			return nil, nil, err
		}
		in := criconfig.ContainerInput{Pod: p, Container: c, Env: env, ImageRef: c.Image, Mounts: mounts}
		if sc := p.Spec.SecurityContext; c.SecurityContext == nil || c.SecurityContext.RunAsUser == nil && sc.RunAsUser == nil {
			in.ImageUser.UID = new(int64(1)) // the image's user is unknown before the pull
		}
		config, err := g.Container(in)
		if err != nil {
			return nil, nil, err
		}
		creates = append(creates, &runtimeapi.CreateContainerRequest{Config: config})
	}
	return run, creates, nil
}
