package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
)

const (
	stateRunning   = "Running"
	stateCompleted = "Completed"
)

// stateLine is a pod's state in kubectl's words, with the numbers of its READY and RESTARTS columns.
func stateLine(d *kuberuntime.Description) string {
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
	text := fmt.Sprintf("%s, %d/%d ready", podState(d), ready, all)
	switch restarts {
	case 0:
	case 1:
		text += ", 1 restart"
	default:
		text += fmt.Sprintf(", %d restarts", restarts)
	}
	return text
}

// podState is the reason of the container that keeps the pod from running, else what all of them are.
func podState(d *kuberuntime.Description) string {
	if d.Pod.Status.Reason != "" {
		return d.Pod.Status.Reason
	}
	all := sumUp(d)
	ready := d.Status.Sandbox().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	over := d.View.Phase == v1.PodSucceeded || d.View.Phase == v1.PodFailed
	switch {
	case d.Status.Sandbox() != nil && !ready && all.runs:
		return "SandboxNotReady"
	case d.Status.Sandbox() != nil && !ready && !over && !d.Kept:
		return "Stopped"
	case all.waits != "" && !isCreating(all.waits):
		return all.waits
	case !d.View.Initialised && all.init > all.initDone:
		return fmt.Sprintf("Init:%d/%d", all.initDone, all.init)
	case all.waits != "":
		return all.waits
	case all.runs:
		return stateRunning
	case len(d.View.Containers) == 0:
		return "NoContainers"
	}
	return stateCompleted
}

// sum is what the containers of a pod are together.
type sum struct {
	runs           bool   // one that is no init container runs
	waits          string // the state of the first that neither runs nor has done its work; a failure comes before a wait
	init, initDone int
}

func sumUp(d *kuberuntime.Description) (all sum) {
	for _, c := range d.View.Containers {
		word := containerWord(d, c)
		switch {
		case c.Ephemeral:
			continue
		case c.Init && !c.Sidecar:
			if all.init++; word == stateCompleted {
				all.initDone++
				continue
			}
			if word == stateRunning || word == "Created" {
				continue
			}
			word = "Init:" + word
		case word == stateRunning:
			all.runs = true
			continue
		case word == stateCompleted:
			continue
		}
		if all.waits == "" || isCreating(all.waits) && !isCreating(word) {
			all.waits = word
		}
	}
	return all
}

func isCreating(word string) bool {
	return strings.HasSuffix(word, "ContainerCreating") || strings.HasSuffix(word, "PodInitializing") || word == "Created"
}

// containerWord is a container's state in one word: kubectl's, or the runtime's.
func containerWord(d *kuberuntime.Description, c plan.ContainerView) string {
	reason, _ := waits(d, c)
	switch {
	case reason != "":
		return reason
	case c.Status.Running():
		return stateRunning
	case c.Status.Exited() && c.Status.Succeeded():
		return stateCompleted
	case c.Status.Exited():
		return cmp.Or(c.Status.Reason, fmt.Sprintf("ExitCode:%d", c.Status.ExitCode))
	case c.Status.Unknown():
		return "Unknown"
	}
	return "Created"
}

// waits returns why a container waits for its start, and when that is tried again. One that has ended in a pod that nobody
// keeps does not wait.
func waits(d *kuberuntime.Description, c plan.ContainerView) (reason string, next time.Time) {
	if c.Status.Running() || c.Status.Exited() && !d.Kept {
		return "", next
	}
	if kept := d.State.Container(c.Container.Name); kept != nil && d.Kept {
		next = kept.NextTry
	}
	return d.Waiting[c.Container.Name].Reason, next
}

// containerState is a container's state in a sentence.
func containerState(d *kuberuntime.Description, c plan.ContainerView, now time.Time) string {
	reason, next := waits(d, c)
	switch {
	case reason != "":
		return reason + again(", next try in ", next, now)
	case c.Status.Running():
		return "Running, started " + ago(now, c.Status.StartedAt)
	case c.Status.Exited():
		return ended(c.Status, now)
	}
	return containerWord(d, c)
}

// cause is why a container does not run or is not ready, with the end of its log where that may say more.
type cause struct {
	text string
	log  []string
}

// causeLines of a log are shown with a cause: the whole stays on a screen.
const causeLines = 5

func causes(d *kuberuntime.Description, now time.Time) (out []cause) {
	if text := podCause(d); text != "" {
		out = append(out, cause{text: text})
	}
	for _, c := range d.View.Containers {
		if text := containerCause(d, c, now); text != "" {
			log := d.Logs[c.Container.Name]
			out = append(out, cause{c.Container.Name + " " + text, log[max(len(log)-causeLines, 0):]})
		}
	}
	return out
}

// podCause is what keeps a pod from having containers.
func podCause(d *kuberuntime.Description) string {
	if d.Pod.Status.Message != "" {
		return d.Pod.Status.Message
	}
	if len(d.Status.Containers) == 0 {
		if e := kuberuntime.LastFailure(d.Events, ""); e != nil && e.Container == "" {
			return e.Why()
		}
	}
	return d.View.Why
}

// containerCause is why a container does not run or is not ready; "" where all is well with it, or another one is the cause.
func containerCause(d *kuberuntime.Description, c plan.ContainerView, now time.Time) string {
	name := c.Container.Name
	reason, next := waits(d, c)
	switch {
	case c.Status.Running() && !c.Ready && (!c.Init || c.Sidecar):
		return "runs and is not ready: " + cmp.Or(oneLine(d.Unready[name]), "its probe has not passed yet")
	case c.Status.Running():
		if last := previous(d, c); c.Status.RestartCount > 0 && last != nil && !last.Succeeded() && now.Sub(c.Status.StartedAt) < 10*time.Minute {
			return "runs again: before, it " + ended(last, now)
		}
		return ""
	case c.Status.Exited() && (!c.Status.Succeeded() || reason != "" && !isCreating(reason)):
		return ended(c.Status, now) + killed(d, c) + again("; it starts again in ", next, now)
	case c.Status.Exited(), reason == "", reason == "PodInitializing":
		return ""
	}
	if e := kuberuntime.LastFailure(d.Events, name); e != nil {
		short := *e
		short.Container, short.Message = "", cli.StartFailure(e.Message)
		if e.Reason == kuberuntime.EventPulling {
			return short.Why() + " for " + duration.HumanDuration(max(now.Sub(e.Time), 0))
		}
		return short.Why() + again("; next try in ", next, now)
	}
	if message := d.Waiting[name].Message; message != "" {
		return "cannot start: " + oneLine(message)
	}
	return ""
}

// killed says so where a probe has ended a container: its status alone looks like a crash.
func killed(d *kuberuntime.Description, c plan.ContainerView) string {
	for _, e := range slices.Backward(d.Events) {
		if e.Container != c.Container.Name {
			continue
		}
		switch e.Reason {
		case kuberuntime.EventKilling:
			return ": " + oneLine(e.Message)
		case kuberuntime.EventStarted:
			return ""
		}
	}
	return ""
}

// previous is the attempt before the newest one.
func previous(d *kuberuntime.Description, c plan.ContainerView) *pod.ContainerStatus {
	if attempts := d.Status.Attempts(c.Container.Name); len(attempts) > 1 {
		return attempts[1]
	}
	return nil
}

// ended tells how an attempt ended.
func ended(c *pod.ContainerStatus, now time.Time) string {
	when := ago(now, c.FinishedAt)
	message := oneLine(cli.StartFailure(c.Message))
	text := ""
	switch {
	case !c.Exited():
		return strings.ToLower(strings.TrimPrefix(c.State.String(), "CONTAINER_"))
	case c.StartedAt.IsZero() && c.ExitCode != 0, c.Reason == "StartError", c.Reason == "ContainerCannotRun":
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

func ago(now, t time.Time) string {
	if t.IsZero() {
		return "some time ago"
	}
	return duration.HumanDuration(max(now.Sub(t), 0)) + " ago"
}

func oneLine(message string) string { return kuberuntime.OneLine(message) }
