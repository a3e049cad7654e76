package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/ocierror"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// Summary is a pod's state in kubectl's words, with the numbers of its READY and RESTARTS columns.
func Summary(d *kuberuntime.Description) string {
	s := facts(d).State()
	text := fmt.Sprintf("%s, %d/%d ready", s.Word, s.Ready, s.Containers)
	switch s.Restarts {
	case 0:
	case 1:
		text += ", 1 restart"
	default:
		text += fmt.Sprintf(", %d restarts", s.Restarts)
	}
	return text
}

func facts(d *kuberuntime.Description) kube.Pod {
	p := kube.Pod{NoSandbox: d.Status.Sandbox() == nil, Ready: d.Status.Sandbox().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY, Managed: d.Managed}
	if d.State != nil {
		p.Reason = d.State.Reason
	}
	if p.NoSandbox {
		p.Reason = cmp.Or(p.Reason, d.State.Ended())
	}
	if e := kuberuntime.LastFailure(d.Events, ""); p.NoSandbox && e != nil && e.Container == "" {
		p.Reason = e.Reason
	}
	for _, c := range d.View.Containers {
		if removed(d, c) {
			continue
		}
		p.Containers = append(p.Containers, container(d, c))
	}
	return p
}

func container(d *kuberuntime.Description, c plan.ContainerView) kube.Container {
	reason, next := waits(d, c)
	out := kube.Container{Init: c.Init, Sidecar: c.Sidecar, Ephemeral: c.Ephemeral, Missing: c.Status == nil, Waits: reason, Next: next, Ready: c.Ready}
	if s := c.Status; s != nil {
		out.State, out.Paused, out.ExitCode, out.Reason, out.Restarts = s.State, s.Paused(), int32(s.ExitCode), s.Reason, s.RestartCount
	}
	return out
}

// removed reports whether a container of the manifest was created, was removed, and is not created again.
func removed(d *kuberuntime.Description, c plan.ContainerView) bool {
	if c.Status != nil || d.Managed && d.State.Ended() == "" {
		return false
	}
	if s := d.State.Container(c.Container.Name); s != nil && s.ID != "" {
		return true
	}
	return slices.ContainsFunc(d.Events, func(e kuberuntime.Event) bool {
		return e.Container == c.Container.Name && (e.Reason == kuberuntime.EventCreated || e.Reason == kuberuntime.EventStarted)
	})
}

// Word returns a container's state in one word: "Removed", a word of kubectl, or a reason of the runtime.
func Word(d *kuberuntime.Description, c plan.ContainerView) string {
	if removed(d, c) {
		return "Removed"
	}
	return container(d, c).Word()
}

// waits returns why a container waits for its start, and when the next try is. A removed container does not wait. An ended
// container waits only if a running sync or apply manages its pod.
func waits(d *kuberuntime.Description, c plan.ContainerView) (reason string, next time.Time) {
	if c.Status.Running() || c.Status.Exited() && !d.Managed || removed(d, c) {
		return "", next
	}
	if kept := d.State.Container(c.Container.Name); kept != nil && d.Managed {
		next = kept.NextTry
	}
	return d.Waiting[c.Container.Name].Reason, next
}

// State returns a container's state as a sentence.
func State(d *kuberuntime.Description, c plan.ContainerView, now time.Time) string {
	reason, next := waits(d, c)
	switch {
	case reason != "":
		return reason + again(", next try in ", next, now)
	case c.Status.Running():
		return Word(d, c) + ", started " + Ago(now, c.Status.StartedAt)
	case c.Status.Exited():
		return Ended(c.Status, now)
	}
	return Word(d, c)
}

// Ended describes the end of an attempt in a sentence.
func Ended(c *pod.ContainerStatus, now time.Time) string {
	when := Ago(now, c.FinishedAt)
	message := oneLine(ocierror.Plain(c.Message))
	text := ""
	switch {
	case !c.Exited():
		return strings.ToLower(strings.TrimPrefix(c.State.String(), "CONTAINER_"))
	case c.NeverStarted():
		text = "could not start " + when
	case c.Reason == pod.OOMKilled:
		text = fmt.Sprintf("ran out of memory (OOMKilled, status %d) %s", c.ExitCode, when)
	default:
		text = fmt.Sprintf("exited with status %d", c.ExitCode)
		if c.Reason != "" {
			text += " (" + c.Reason + ")"
		}
		text += " " + when
	}
	if message != "" {
		text += ": " + message
	}
	return text
}

func again(words string, next, now time.Time) string {
	if next.IsZero() {
		return ""
	}
	return words + duration.HumanDuration(max(next.Sub(now), 0))
}

// Ago formats how long ago t was.
func Ago(now, t time.Time) string {
	if t.IsZero() {
		return "some time ago"
	}
	return duration.HumanDuration(max(now.Sub(t), 0)) + " ago"
}

func oneLine(message string) string { return kuberuntime.OneLine(message) }
