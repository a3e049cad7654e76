package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/crishim/crishim/kuberuntime/corev1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// poll is how often Up looks at a pod that has nothing to do but wait.
const poll = 200 * time.Millisecond

// ErrPodFailed is a pod that ended and will not start again.
var ErrPodFailed = errors.New("the pod has failed")

// Up brings a pod up: all its containers started once, or with wait ready (a pod that ends
// by itself: ended well). It returns as soon as that cannot come any more. What it leaves
// behind on an error is repaired by the next call.
func (m *Manager) Up(ctx context.Context, p *v1.Pod, set *manifest.Set, wait bool) (*plan.View, error) {
	defer m.prober.Keep(string(p.UID), nil)
	for first := true; ; first = false {
		status, err := m.GetPodStatus(ctx, string(p.UID), p.Name, p.Namespace)
		if err != nil {
			return nil, err
		}
		m.WatchProbes(p, status)
		view := m.View(p, status)
		// What runs before the first step may be what that step replaces.
		if !first {
			if done, err := isUp(view, wait); done || err != nil {
				return view, err
			}
		}
		result := m.SyncPod(ctx, p, set, status)
		if result.Err != nil && !(wait && result.OnlyBackOff()) {
			return view, startFailure(result.Err, status)
		}
		if result.Err == nil && !result.Actions.Nothing() {
			continue
		}
		if first {
			continue
		}
		if err := m.pause(ctx, poll); err != nil {
			return view, err
		}
	}
}

// isUp says whether Up is at its end.
func isUp(view *plan.View, wait bool) (bool, error) {
	switch {
	case view.Phase == v1.PodFailed:
		return false, fmt.Errorf("%w: %s", ErrPodFailed, whatFailed(view))
	case view.Phase == v1.PodSucceeded:
		return true, nil
	case slices.ContainsFunc(view.Containers, func(c plan.ContainerView) bool { return c.Ephemeral && c.Status == nil }):
		return false, nil // they come one step after the others
	case wait:
		return view.Ready, nil
	}
	return view.Started, nil
}

func whatFailed(view *plan.View) string {
	var out []string
	for _, c := range view.Containers {
		if c.Status.Exited() && c.Status.ExitCode != 0 {
			out = append(out, describeEnd(c.Status))
		}
	}
	return strings.Join(out, ", ")
}

func describeEnd(c *pod.ContainerStatus) string {
	text := fmt.Sprintf("container %s ended with status %d", c.Name, c.ExitCode)
	if message := OneLine(c.Message); message != "" {
		text += ": " + message
	}
	return text
}

// OneLine is a termination message as a sentence can have it.
func OneLine(message string) string {
	return strings.ReplaceAll(strings.TrimSpace(message), "\n", "; ")
}

// startFailure says of a container in its back-off how it ended: that is the news.
func startFailure(err error, status *pod.Status) error {
	if !errors.Is(err, ErrCrashLoop) {
		return err
	}
	var waiting *Waiting
	if errors.As(err, &waiting) {
		if c := status.Container(waiting.Container); c.Exited() {
			return fmt.Errorf("%w: %s", ErrCrashLoop, describeEnd(c))
		}
	}
	return err
}

// pause waits a moment, or until a probe has news.
func (m *Manager) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-m.changed:
	case <-timer.C:
	}
	return nil
}
