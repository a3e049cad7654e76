package diagnose

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// Words for the state of a container, kubectl's.
const (
	Running   = "Running"
	Completed = "Completed"
)

// Summary is a pod's state in kubectl's words, with the numbers of its READY and RESTARTS columns.
func Summary(d *kuberuntime.Description) string {
	ready, all, restarts := 0, 0, 0
	for _, c := range d.View.Containers {
		if c.Status != nil {
			restarts += c.Status.RestartCount
		}
		if c.Ephemeral || c.Init && !c.Sidecar {
			continue
		}
		if all++; c.Ready {
			ready++
		}
	}
	text := fmt.Sprintf("%s, %d/%d ready", PodState(d), ready, all)
	switch restarts {
	case 0:
	case 1:
		text += ", 1 restart"
	default:
		text += fmt.Sprintf(", %d restarts", restarts)
	}
	return text
}

// PodState is the reason of the container that keeps the pod from running, else what all of them are.
func PodState(d *kuberuntime.Description) string {
	if d.Pod.Status.Reason != "" {
		return d.Pod.Status.Reason
	}
	all := sumUp(d)
	ready := d.Status.Sandbox().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	over := d.View.Phase == v1.PodSucceeded || d.View.Phase == v1.PodFailed
	switch {
	case d.Status.Sandbox() != nil && !ready && all.runs:
		return "SandboxNotReady"
	case d.Status.Sandbox() != nil && !ready && !over && !d.Managed:
		return "Stopped"
	case all.waits != "" && !IsCreating(all.waits):
		return all.waits
	case !d.View.Initialised && all.init > all.initDone:
		return fmt.Sprintf("Init:%d/%d", all.initDone, all.init)
	case all.waits != "":
		return all.waits
	case all.runs:
		return Running
	case len(d.View.Containers) == 0:
		return "NoContainers"
	}
	return Completed
}

// sum is the state of all containers of a pod together.
type sum struct {
	runs           bool   // one that is no init container runs
	waits          string // the state of the first that neither runs nor has done its work; a failure comes before a wait
	init, initDone int
}

func sumUp(d *kuberuntime.Description) (all sum) {
	for _, c := range d.View.Containers {
		word := Word(d, c)
		switch {
		case c.Ephemeral:
			continue
		case c.Init && !c.Sidecar:
			if all.init++; word == Completed {
				all.initDone++
				continue
			}
			if word == Running || word == "Created" {
				continue
			}
			word = "Init:" + word
		case word == Running:
			all.runs = true
			continue
		case word == Completed:
			continue
		}
		if all.waits == "" || IsCreating(all.waits) && !IsCreating(word) {
			all.waits = word
		}
	}
	return all
}

// IsCreating reports whether a state is that of a container that is being created.
func IsCreating(word string) bool {
	return strings.HasSuffix(word, "ContainerCreating") || strings.HasSuffix(word, "PodInitializing") || word == "Created"
}

// Word is a container's state in one word: kubectl's, or the runtime's.
func Word(d *kuberuntime.Description, c plan.ContainerView) string {
	reason, _ := waits(d, c)
	switch {
	case reason != "":
		return reason
	case c.Status.Paused():
		return "Paused"
	case c.Status.Running():
		return Running
	case c.Status.Exited() && c.Status.Succeeded():
		return Completed
	case c.Status.Exited():
		return cmp.Or(c.Status.Reason, fmt.Sprintf("ExitCode:%d", c.Status.ExitCode))
	case c.Status.Unknown():
		return "Unknown"
	}
	return "Created"
}

// waits returns why a container waits for its start, and when that is tried again. One that has ended in a pod that is not
// kept running does not wait.
func waits(d *kuberuntime.Description, c plan.ContainerView) (reason string, next time.Time) {
	if c.Status.Running() || c.Status.Exited() && !d.Managed {
		return "", next
	}
	if kept := d.State.Container(c.Container.Name); kept != nil && d.Managed {
		next = kept.NextTry
	}
	return d.Waiting[c.Container.Name].Reason, next
}

// State is a container's state in a sentence.
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

// Ended is how an attempt ended, in a sentence.
func Ended(c *pod.ContainerStatus, now time.Time) string {
	when := Ago(now, c.FinishedAt)
	message := oneLine(client.StartFailure(c.Message))
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

// Ago is when something was, in words.
func Ago(now, t time.Time) string {
	if t.IsZero() {
		return "some time ago"
	}
	return duration.HumanDuration(max(now.Sub(t), 0)) + " ago"
}

func oneLine(message string) string { return kuberuntime.OneLine(message) }
