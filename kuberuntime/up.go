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

// poll is how often Up looks at a pod that has nothing to do but wait.
const poll = 200 * time.Millisecond

// minReady is how long a container without a readiness probe runs before Up counts it as ready: it may end at once.
const minReady = 500 * time.Millisecond

// ErrPodFailed is a pod that has ended and does not start again.
var ErrPodFailed = errors.New("the pod has failed")

type Until int

const (
	UntilStarted Until = iota // every container was started once
	UntilReady                // the pod is ready, or has succeeded
	UntilDone                 // the pod has ended if its restart policy lets it, else it is ready
)

type Wait struct {
	Until Until
	// MaxBackOff is the longest wait for the next start of a container that crashes; 0 is
	// any. A crash loop has no end of its own.
	MaxBackOff time.Duration
}

// DefaultMaxBackOff ends a crash loop after six starts, as many as a Job has by default.
const DefaultMaxBackOff = 2 * time.Minute

// Up brings a pod up, as far as w says, and returns as soon as that is impossible. The next call goes on from there.
// listed is the pod as it was just listed, nil if the runtime has nothing of it. The view is of the status.
func (m *Manager) Up(ctx context.Context, p *v1.Pod, set *manifest.Set, listed *pod.Pod, w Wait) (*plan.View, *pod.Status, error) {
	listed = cmp.Or(listed, &pod.Pod{UID: string(p.UID), Name: p.Name, Namespace: p.Namespace})
	defer m.prober.Keep(string(p.UID), nil)
	defer m.closeState(string(p.UID)) // first: the state keeps the results of the probes
	ended := ""                       // why the last step stopped the pod for good
	var waits error                   // what the last step waited for
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
		m.recordState(ctx, p, current, nil) // not before: what Up has seen is in the state
		// The first step may replace the containers that run before it.
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

// givesUp reports whether Up does not wait for what the step failed at. A Job's backoffLimit takes the place of MaxBackOff.
func (r *SyncResult) givesUp(p *v1.Pod, w Wait) bool {
	_, limited := plan.BackoffLimit(p)
	return r.Err != nil && (w.Until == UntilStarted || !r.OnlyBackOff() || !limited && r.backsOffLonger(w.MaxBackOff))
}

// waitError returns err, or for a context that has ended its cause and what Up waited for.
func waitError(ctx context.Context, err, waits error) error {
	// The other end of a call may see the deadline a moment before this one.
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

// isUp reports whether Up is done. A pod that has ended is stopped first with its sandbox and
// sidecars. ended is why the plan stopped it for good.
func isUp(p *v1.Pod, view *plan.View, status *pod.Status, until Until, ended string) (bool, error) {
	over := view.Phase == v1.PodFailed || view.Phase == v1.PodSucceeded
	switch {
	case over && ended == "" && !isDead(status):
		return false, nil
	case view.Phase == v1.PodSucceeded:
		return true, nil
	case over, ended != "":
		return false, fmt.Errorf("%w: %s", ErrPodFailed, cmp.Or(whatFailed(view), ended))
	case slices.ContainsFunc(view.Containers, func(c plan.ContainerView) bool { return c.Ephemeral && c.Status == nil }):
		return false, nil // they start one step after the others
	case until == UntilStarted:
		return view.Started, nil
	case until == UntilDone && plan.MeantToEnd(p):
		return false, nil
	}
	return IsReady(view, status), nil
}

// IsReady reports whether a pod is ready, and its containers without a readiness probe run for more than a moment.
func IsReady(view *plan.View, status *pod.Status) bool {
	young := func(c plan.ContainerView) bool {
		if c.Init || c.Ephemeral || c.Container.ReadinessProbe != nil || c.Status == nil {
			return false
		}
		age := status.At.Sub(c.Status.StartedAt) // negative when the clock was put back
		return age >= 0 && age < minReady
	}
	return view.Ready && !slices.ContainsFunc(view.Containers, young)
}

// notYet names the containers that Up still waits for.
func notYet(p *v1.Pod, view *plan.View, until Until) error {
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

// OneLine returns a termination message in one line.
func OneLine(message string) string {
	return strings.ReplaceAll(strings.TrimSpace(message), "\n", "; ")
}

// startFailure adds how a container in its back-off ended.
func startFailure(err error, status *pod.Status) error {
	if waiting, ok := errors.AsType[*WaitingError](err); ok && errors.Is(err, ErrCrashLoopBackOff) {
		if c := status.Container(waiting.Container); c.Exited() {
			return fmt.Errorf("%w: %s", ErrCrashLoopBackOff, describeEnd(c))
		}
	}
	return err
}

// pause waits, or until a probe of the pod has another result.
func (m *Manager) pause(ctx context.Context, uid string) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-m.probed(uid):
	case <-time.After(poll):
	}
	return nil
}

// RemoveReplaced removes the pods of the same name that apply made of other manifests. It reports
// whether there was one, and returns this very pod, nil if it was not there before.
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
			return false, nil, &ForeignPodError{Name: other.FullName(), UID: other.UID, Owner: owner}
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
			in.ImageUser.UID = new(int64(1)) // the image's user is known once it is pulled
		}
		config, err := g.Container(in)
		if err != nil {
			return nil, nil, err
		}
		creates = append(creates, &runtimeapi.CreateContainerRequest{Config: config})
	}
	return run, creates, nil
}
