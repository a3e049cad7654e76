package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	units "github.com/docker/go-units"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/hostproc"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// recently is how long after a restart the previous end is still reported.
const recently = 10 * time.Minute

// container finds why a container does not run or is not ready. It returns false for a healthy container, and if another
// container is the cause.
func (x explainer) container(c plan.ContainerView) (Finding, bool) {
	d, now, name := x.p.Description, x.f.At, c.Container.Name
	reason, next := waits(d, c)
	switch {
	case c.Status.Running():
		return x.running(c)
	case c.Status.Exited() && (!c.Status.Succeeded() || reason != "" && !kube.IsCreating(reason)):
		f := x.ended(c, c.Status)
		f.Text = name + " " + f.Text + again("; it starts again in ", next, now)
		return f, true
	case c.Status.Exited(), reason == kube.PodInitializing:
		return Finding{}, false
	case c.Status.Unknown():
		return Finding{
			Severity: Error, Code: codeStateUnknown, ID: c.Status.ID, Text: name + " is in a state that the runtime does not know any more",
			Next: []string{"crishim rm -f " + short(c.Status.ID), "crishim doctor"},
		}, true
	case reason == "":
		return x.created(c)
	}
	if e := kuberuntime.LastFailure(d.Events, name); e != nil {
		f := x.startFailure(c, e)
		if e.Reason != kuberuntime.EventPulling {
			f.Text += again("; next try in ", next, now)
		}
		f.Text = name + " " + f.Text
		return f, true
	}
	if message := d.Waiting[name].Message; message != "" {
		return Finding{Severity: Error, Code: codeNotStarted, Text: name + " cannot start: " + oneLine(message), Next: []string{"crishim describe POD"}}, true
	}
	return Finding{}, false
}

// created explains a container that was created and never started. A kubelet starts a container right after creating it.
func (x explainer) created(c plan.ContainerView) (Finding, bool) {
	if c.Status == nil || c.Status.State != runtimeapi.ContainerState_CONTAINER_CREATED || x.f.At.Sub(c.Status.CreatedAt) < time.Minute {
		return Finding{}, false
	}
	return Finding{
		Severity: Note, Code: codeNotStarted, ID: c.Status.ID, Time: c.Status.CreatedAt,
		Text: c.Container.Name + " was created " + Ago(x.f.At, c.Status.CreatedAt) + " and never started", Next: []string{"crishim start " + short(c.Status.ID)},
	}, true
}

// running explains a container that runs and is not ready, or was restarted a short time ago.
func (x explainer) running(c plan.ContainerView) (Finding, bool) {
	d, name := x.p.Description, c.Container.Name
	if detail := x.p.Containers[c.Status.ID]; c.Status.Paused() || detail != nil && detail.Paused {
		return Finding{
			Severity: Error, Code: codePaused, ID: c.Status.ID, Text: name + " is paused: its processes get no time to run", Next: []string{"crishim unpause TARGET"},
		}, true
	}
	if !c.Ready && (!c.Init || c.Sidecar) {
		return Finding{
			Severity: Error, Code: codeNotReady, ID: c.Status.ID, Log: x.log(c),
			Text: name + " runs and is not ready: " + cmp.Or(oneLine(d.Unready[name]), "its probe has not passed yet"), Evidence: probeEvidence(c.Container),
			Next: []string{"crishim logs TARGET", "crishim exec -it TARGET sh"},
		}, true
	}
	attempts := d.Status.Attempts(name)
	if len(attempts) > 1 && c.Status.RestartCount > 0 && !attempts[1].Succeeded() && x.f.At.Sub(c.Status.StartedAt) < recently {
		f := x.ended(c, attempts[1])
		if f.Code == codeStoppedByUser { // the user stopped the container in order to restart it
			return Finding{}, false
		}
		f.Severity, f.Text = Warning, name+" runs again: before, it "+f.Text
		if f.Code == codeExited {
			f.Code = codeRestarted
		}
		return f, true
	}
	if kills, evidence := x.kills(c.Status); kills > 0 {
		return Finding{
			Severity: Warning, Code: codeProcessKilled, ID: c.Status.ID, Evidence: evidence,
			Text: fmt.Sprintf("%s runs, but the kernel ended %s in it because it was out of memory", name, times(kills, "a process", "processes")),
			Next: []string{"crishim stats TARGET", "crishim exec TARGET ps"},
		}, true
	}
	if started := c.Status.StartedAt; c.Init && !c.Sidecar && x.f.At.Sub(started) > time.Minute {
		return Finding{
			Severity: Note, Code: codeNotReady, ID: c.Status.ID, Log: x.log(c),
			Text: name + " was started " + Ago(x.f.At, started) + " and still runs: the other containers wait for the end of this init container",
			Next: []string{"crishim logs TARGET", "crishim exec -it TARGET sh"},
		}, true
	}
	return Finding{}, false
}

// ended explains the end of an attempt: a failure, or a success after which the container waits for its next start. The
// text omits the container's name.
func (x explainer) ended(c plan.ContainerView, s *pod.ContainerStatus) Finding {
	f := Finding{
		Severity: Error, Code: codeExited, ID: s.ID, Time: s.FinishedAt, Text: Ended(s, x.f.At), Log: x.log(c),
		Next: []string{"crishim logs " + previousFlag(x.p, s) + "TARGET", "crishim describe POD"},
	}
	if s.ExitCode == 0 && s.Reason != pod.OOMKilled { // the container succeeded and waits for its next start
		f.Severity = Warning
	}
	if s.NeverStarted() {
		x.couldNotStart(&f, c, s)
		return f
	}
	kills, evidence := x.kills(s)
	byJournal := x.journal(s.ID, "oom")
	signal := signalOf(s.ExitCode)
	switch {
	case s.Reason == pod.OOMKilled:
		f.Code, f.Evidence = codeOutOfMemory, evidence
	case kills > 0 && signal == unix.SIGKILL, byJournal != nil && signal == unix.SIGKILL:
		f.Code, f.Evidence = codeOutOfMemory, evidence
		f.Text = fmt.Sprintf("ran out of memory (the kernel ended it, status %d) %s", s.ExitCode, Ago(x.f.At, s.FinishedAt))
		if byJournal != nil {
			f.Evidence = append(f.Evidence, "the engine noted that it ran out of memory")
		}
	case x.stoppedByRuntime(&f, c.Container, s):
	case restarted(s, x.f.Node.Booted):
		x.infer(&f, codeNodeRestarted, "probably because the node restarted", "the node started at "+clock(x.f.Node.Booted)+", and the container before that")
		x.startAgain(&f)
	case restarted(s, x.f.Node.EngineStarted):
		x.infer(&f, codeEngineRestarted, "probably because the engine restarted", "the engine's process started at "+clock(x.f.Node.EngineStarted)+", and the container before that")
		x.startAgain(&f)
	case signal != 0:
		x.signalled(&f, s, signal, kills, evidence)
	default:
		f.Evidence = append(f.Evidence, statusEvidence(s.ExitCode)...)
		if kills > 0 {
			f.Evidence = append(f.Evidence, append([]string{"the kernel ended processes in it before"}, evidence...)...)
		}
		x.cannotRun(&f, s)
		x.portTaken(&f, c)
		x.fullVolumes(&f, s)
	}
	if f.Code == codeOutOfMemory {
		f.Evidence = append(f.Evidence, limitEvidence(s)...)
		if c.Status.Running() {
			f.Next = append([]string{f.Next[0], "crishim stats TARGET"}, f.Next[1:]...)
		}
	}
	if detail := x.p.Containers[s.ID]; detail != nil {
		for _, path := range detail.Missing {
			f.Evidence = append(f.Evidence, path+", which is mounted in it, is not there now")
		}
	}
	if missing := x.restarts(c); missing != "" {
		f.Evidence = append(f.Evidence, missing)
	}
	return f
}

// startAgain adds the command that starts an unmanaged container.
func (x explainer) startAgain(f *Finding) {
	switch {
	case x.p.Managed:
	case x.sandboxReady():
		f.Next = append([]string{"crishim restart TARGET"}, f.Next...)
	case x.p.Owner.Apply:
		f.Next = append([]string{"crishim apply -f MANIFEST"}, f.Next...)
	}
}

func (x explainer) sandboxReady() bool {
	return x.p.Status.Sandbox().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && x.p.Status.Sandbox() != nil
}

// fullVolumes adds that a volume of the container is full. The program may have failed for another reason.
func (x explainer) fullVolumes(f *Finding, s *pod.ContainerStatus) {
	if detail := x.p.Containers[s.ID]; detail != nil && len(detail.Full) > 0 && !f.Probable {
		x.infer(f, codeDiskFull, "probably because the volume at "+detail.Full[0]+" is full", "nothing can be written below "+strings.Join(detail.Full, ", "))
		f.Next = append([]string{"df"}, f.Next...)
	}
}

// infer adds a probable cause and its evidence.
func (x explainer) infer(f *Finding, code Code, text, evidence string) {
	f.Code, f.Probable, f.Text = code, true, f.Text+", "+text
	f.Evidence = append(f.Evidence, evidence)
}

// signalled explains a container whose exit status stands for a signal. A program can exit with such a status by itself.
func (x explainer) signalled(f *Finding, s *pod.ContainerStatus, signal unix.Signal, kills int, evidence []string) {
	f.Code = codeSignalled
	name := unix.SignalName(signal)
	sent, killed := x.journal(s.ID, "kill"), x.sandboxKilled()
	switch {
	case killed != "":
		f.Code = codeSandboxGone
		f.Text += ", because the pod's sandbox was killed"
		f.Evidence = append(f.Evidence, killed)
	case sent != nil:
		f.Severity, f.Code = Note, codeStoppedByUser
		f.Text += ", ended by " + name
		f.Evidence = append(f.Evidence, fmt.Sprintf("the engine was asked at %s to send it signal %s: by a stop, a kill, or the engine's own end", clock(sent.Time), sent.Signal))
	case (signal == unix.SIGTERM || signal == unix.SIGKILL || signal == unix.SIGINT) && !x.sandboxReady():
		f.Severity, f.Code, f.Probable = Note, codeStoppedByUser, true
		f.Text += ", ended by " + name + ", probably because its pod was stopped"
		f.Evidence = append(f.Evidence, fmt.Sprintf("status %d is that of %s, and the pod's sandbox has ended, too", s.ExitCode, name))
	case signal == unix.SIGTERM:
		f.Severity, f.Code, f.Probable = Note, codeStoppedByUser, true
		f.Text += ", ended by " + name + ", probably because it was stopped"
		f.Evidence = append(f.Evidence, fmt.Sprintf("status %d is that of %s, which a stop sends first", s.ExitCode, name))
	case signal == unix.SIGKILL && s.Resources.GetLinux().GetMemoryLimitInBytes() > 0 && len(x.f.Node.Unread) > 0:
		f.Probable = true
		f.Text += ", probably killed: for its memory, or by a person"
		f.Evidence = append(append(f.Evidence, fmt.Sprintf("status %d is that of %s", s.ExitCode, name)), x.f.Node.Unread...)
	default:
		f.Probable = true
		f.Text += ", probably ended by " + name
		f.Evidence = append(f.Evidence, fmt.Sprintf("status %d is that of %s%s", s.ExitCode, name, signalMeaning[signal]))
		if signal == unix.SIGKILL && kills == 0 && len(x.f.Node.Unread) == 0 {
			f.Evidence = append(f.Evidence, "the kernel log has no kill in it for want of memory")
		}
	}
	f.Evidence = append(f.Evidence, evidence...)
}

var signalMeaning = map[unix.Signal]string{
	unix.SIGSEGV: ": it used memory that is not its own",
	unix.SIGABRT: ": it ended itself, as after a failed assertion",
	unix.SIGILL:  ": it ran an instruction that this processor does not have",
	unix.SIGBUS:  ": it used memory that is not there, as of a file that was cut",
	unix.SIGFPE:  ": it divided by zero, or the like",
	unix.SIGPIPE: ": it wrote to what nothing reads any more",
	unix.SIGSYS:  ": seccomp does not let it make that call",
}

// signalOf returns the signal that an exit status stands for, or 0.
func signalOf(status int) unix.Signal {
	const first = 128
	if status > first && status <= first+64 && unix.SignalName(unix.Signal(status-first)) != "" {
		return unix.Signal(status - first)
	}
	return 0
}

// statusEvidence explains an exit status that shells use for a command that they cannot run.
func statusEvidence(status int) []string {
	switch status {
	case 126:
		return []string{"a shell gives status 126 for a command that it cannot run"}
	case 127:
		return []string{"a shell gives status 127 for a command that it does not find"}
	}
	return nil
}

// lost is the status of a container whose end an engine did not see.
const lost = 255

// restarted reports whether a container ended at the time of a restart of the node or the engine: from 30 s before it to
// 15 s after it, or to 2 min after it with the status of a signal or of an end that the engine did not see. An engine
// ends its containers before it stops or when it finds them again. Many containers survive its restart and end by
// themselves later.
func restarted(s *pod.ContainerStatus, at time.Time) bool {
	const before = 30 * time.Second
	after := 15 * time.Second
	if s.ExitCode == lost || signalOf(s.ExitCode) != 0 {
		after = 2 * time.Minute
	}
	return !at.IsZero() && s.StartedAt.Before(at.Add(-time.Second)) && s.FinishedAt.After(at.Add(-before)) && s.FinishedAt.Before(at.Add(after))
}

// kills counts the OOM kills in a container, and returns the kernel log's details.
func (x explainer) kills(s *pod.ContainerStatus) (count int, evidence []string) {
	for _, k := range x.f.Node.Kills {
		if hostproc.ContainerOf(k.Group) != s.ID {
			continue
		}
		count++
		text := fmt.Sprintf("the kernel ended process %d (%s), which had %s of memory", k.Pid, k.Process, units.BytesSize(float64(k.Resident)))
		switch {
		case k.LimitOf == "":
			text += ": the whole node was out of memory"
		case hostproc.ContainerOf(k.LimitOf) == s.ID && k.Limit > 0:
			text += fmt.Sprintf("; the container used %s of its limit of %s", units.BytesSize(float64(k.Usage)), units.BytesSize(float64(k.Limit)))
		case k.Limit > 0:
			text += fmt.Sprintf("; its pod, or what that is in, used %s of its limit of %s", units.BytesSize(float64(k.Usage)), units.BytesSize(float64(k.Limit)))
		}
		if k.All {
			text += "; the kernel ended all other processes of the container with it"
		}
		evidence = append(evidence, text)
	}
	const most = 3
	evidence = evidence[max(len(evidence)-most, 0):]
	if detail := x.p.Containers[s.ID]; detail != nil && detail.Memory != nil && int(detail.Memory.Kills) > count {
		count = int(detail.Memory.Kills)
		evidence = append(evidence, fmt.Sprintf("its cgroup counts %s, and a peak of %s", times(count, "one kill", "kills"), units.BytesSize(float64(detail.Memory.Peak))))
	}
	return count, evidence
}

// journal returns the engine's last event of a kind about a container since it was last started.
func (x explainer) journal(id, action string) (found *client.EngineEvent) {
	for i, e := range x.p.Journal {
		switch {
		case e.ID != id:
		case e.Action == "start":
			found = nil
		case e.Action == action:
			found = &x.p.Journal[i]
		}
	}
	return found
}

// userStop is the longest time from a user's command, or the end of its grace period, to an end of the container that the
// command explains. A program may survive the signal and end much later for another reason.
const userStop = 5 * time.Minute

// eventsOf returns the events about an attempt of a container, from its start to the start of the next attempt.
func (x explainer) eventsOf(s *pod.ContainerStatus) []kuberuntime.Event {
	later := 0
	for _, attempt := range x.p.Status.Attempts(s.Name) {
		if attempt.ID == s.ID {
			break
		}
		if !attempt.StartedAt.IsZero() {
			later++
		}
	}
	var events []kuberuntime.Event
	for _, e := range slices.Backward(x.p.Events) {
		switch {
		case e.Container != s.Name:
		case e.Reason == kuberuntime.EventKilling && e.ID != "": // recorded by a user's command for one attempt
			if e.ID == s.ID && !e.Time.Before(s.StartedAt) && !s.FinishedAt.Before(e.Time) && s.FinishedAt.Before(slices.MaxFunc([]time.Time{e.Time, e.Until}, time.Time.Compare).Add(userStop)) {
				events = append(events, e)
			}
		case e.Reason == kuberuntime.EventStarted && later == 0:
			slices.Reverse(events)
			return events
		case e.Reason == kuberuntime.EventStarted:
			later--
		case later == 0:
			events = append(events, e)
		}
	}
	slices.Reverse(events)
	return events
}

// stoppedByRuntime explains an attempt that the pod runtime has ended. Its exit status alone looks like a crash. The first
// killing event has the cause; if the whole pod ends, more such events follow.
func (x explainer) stoppedByRuntime(f *Finding, c *v1.Container, s *pod.ContainerStatus) bool {
	events := x.eventsOf(s)
	first := slices.IndexFunc(events, func(e kuberuntime.Event) bool { return e.Reason == kuberuntime.EventKilling })
	if first < 0 {
		return false
	}
	killed := events[first]
	f.Text += ": " + oneLine(killed.Message)
	said := func(reason string) {
		for _, e := range slices.Backward(events[:first]) {
			if e.Reason == reason {
				f.Evidence = append(f.Evidence, oneLine(e.Message))
				return
			}
		}
	}
	switch killed.Cause {
	case plan.ReasonLiveness, plan.ReasonStartup:
		f.Code = codeProbeFailed
		said(kuberuntime.EventUnhealthy)
		f.Evidence = append(f.Evidence, probeEvidence(c)...)
	case plan.ReasonPostStart:
		f.Code = codeHookFailed
		said(kuberuntime.EventPostStartFailed)
	default:
		if e := x.sandboxChanged(killed.Time); e != nil {
			f.Code = codeSandboxGone
			f.Evidence = append(f.Evidence, fmt.Sprintf("the pod's sandbox was lost at %s: %s", clock(e.Time), oneLine(e.Message)))
			return true
		}
		f.Severity, f.Code = Note, codeStoppedByUser
		f.Evidence = append(f.Evidence, "crishim stopped it at "+clock(killed.Time))
	}
	return true
}

// sandboxChanged returns the newest SandboxChanged event in the minute before a container was stopped, or nil. The pod
// runtime emits this event when the sandbox no longer fits.
func (x explainer) sandboxChanged(stopped time.Time) *kuberuntime.Event {
	for i, e := range slices.Backward(x.p.Events) {
		if e.Reason == kuberuntime.EventSandboxChanged && !e.Time.After(stopped) && stopped.Sub(e.Time) < time.Minute {
			return &x.p.Events[i]
		}
	}
	return nil
}

// sandboxKilled returns how the newest sandbox was killed, or "" if it was not: it ended, and the engine's last signal to
// it, if any, was SIGKILL.
func (x explainer) sandboxKilled() string {
	id := x.p.Status.Sandbox().GetId()
	asked := x.journal(id, "kill")
	switch {
	case x.journal(id, "die") == nil:
		return ""
	case asked == nil:
		return fmt.Sprintf("the engine noted the end of sandbox %.13s, without a request to stop it", id)
	case asked.Signal == "9", asked.Signal == "SIGKILL":
		return fmt.Sprintf("the engine was asked at %s to send signal %s to sandbox %.13s", clock(asked.Time), asked.Signal, id)
	}
	return ""
}

// restarts returns why a container is not restarted, "" if it is.
func (x explainer) restarts(c plan.ContainerView) string {
	if x.p.Managed || !x.p.Recorded || c.Status.Running() || !plan.Restartable(x.p.Pod, c.Container) {
		return ""
	}
	return fmt.Sprintf("%s made the pod and has ended, so nothing starts the container again", x.p.Owner)
}

// log returns the last lines of the newest failed attempt.
func (x explainer) log(c plan.ContainerView) []string {
	log := x.p.Logs[c.Container.Name]
	return log[max(len(log)-causeLines, 0):]
}

func limitEvidence(s *pod.ContainerStatus) []string {
	if limit := s.Resources.GetLinux().GetMemoryLimitInBytes(); limit > 0 {
		return []string{"its memory limit is " + units.BytesSize(float64(limit))}
	}
	return []string{"it has no memory limit of its own"}
}

func probeEvidence(c *v1.Container) (out []string) {
	for _, one := range []struct {
		kind string
		p    *v1.Probe
	}{{"startup", c.StartupProbe}, {"readiness", c.ReadinessProbe}, {"liveness", c.LivenessProbe}} {
		if one.p == nil {
			continue
		}
		what := "?"
		switch h := one.p.ProbeHandler; {
		case h.Exec != nil:
			what = "runs " + strings.Join(h.Exec.Command, " ")
		case h.HTTPGet != nil:
			what = fmt.Sprintf("gets %s on port %s", cmp.Or(h.HTTPGet.Path, "/"), h.HTTPGet.Port.String())
		case h.TCPSocket != nil:
			what = "connects to port " + h.TCPSocket.Port.String()
		case h.GRPC != nil:
			what = fmt.Sprintf("asks gRPC on port %d", h.GRPC.Port)
		}
		out = append(out, fmt.Sprintf("its %s probe %s every %ds, and waits %ds", one.kind, what, max(one.p.PeriodSeconds, 1), max(one.p.TimeoutSeconds, 1)))
	}
	return out
}

// previousFlag returns the flag of the logs command for an older attempt, or "" for the newest attempt.
func previousFlag(p *Pod, s *pod.ContainerStatus) string {
	if newest := p.Status.Container(s.Name); newest != nil && newest.ID != s.ID {
		return "--previous "
	}
	return ""
}

func times(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// clock formats a time within a sentence.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

func short(id string) string { return id[:min(len(id), 13)] }

func waited(now, since time.Time) string { return duration.HumanDuration(max(now.Sub(since), 0)) }
