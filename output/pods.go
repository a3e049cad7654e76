package output

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

var podColumns = []column[pod]{
	{name: "POD ID", value: func(p pod, o Options) string { return shortID(p.GetId(), o) }},
	{name: "CREATED", spare: 5, number: pod.GetCreatedAt, value: func(p pod, o Options) string { return age(p.GetCreatedAt(), o) }},
	{name: "READY", value: func(p pod, o Options) string {
		r := resultOf(p, o)
		if r.unprobed {
			return fmt.Sprintf("?/%d", r.containers)
		}
		return fmt.Sprintf("%d/%d", r.ready, r.containers)
	}},
	{
		name: "STATE", shrink: true, least: len("CrashLoopBackOff"), width: len("CrashLoopBackOff"), value: podState,
		tone: func(p pod, o Options) tone { return resultOf(p, o).tone },
	},
	{name: "RESTARTS", spare: 7, value: func(p pod, o Options) string { return fmt.Sprint(resultOf(p, o).restarts) }},
	{name: "NAME", shrink: true, least: 10, value: func(p pod, _ Options) string { return orUnknown(podName(p)) }},
	{name: "NAMESPACE", shrink: true, spare: 6, value: func(p pod, _ Options) string { return orUnknown(podNamespace(p)) }},
	{name: "IP", spare: 4, value: podIP},
	{name: "SANDBOX", spare: 1, value: func(p pod, _ Options) string { return enumWord(p.GetState().String()) }},
	{name: "ATTEMPT", spare: 1, number: by(podAttempt), value: func(p pod, _ Options) string { return fmt.Sprint(podAttempt(p)) }},
	{name: "RUNTIME", spare: 1, value: func(p pod, _ Options) string { return cmp.Or(p.GetRuntimeHandler(), "(default)") }},
	{name: "UID", wide: true, value: func(p pod, _ Options) string { return p.GetMetadata().GetUid() }},
}

// crictlPodColumns are those that crictl shows; its STATE is the sandbox's.
var crictlPodColumns = crictlColumns{
	plain: []string{"POD ID", "CREATED", "STATE", "NAME", "NAMESPACE", "ATTEMPT", "RUNTIME"},
	wide:  []string{"UID"},
}

// PodNeeds returns what a table of pods needs in addition to the list: Dead stands for the
// containers, and the status of those that have ended.
func PodNeeds(o Options) (n Needs) {
	shown, err := choose(asCrictl(podColumns, crictlPodColumns, o), o)
	if err != nil || o.Quiet || o.Format.ForMachines() {
		return n
	}
	for _, name := range append(each(shown, func(c column[pod]) string { return key(c.name) }), key(strings.TrimPrefix(o.Sort, "-"))) {
		n.Dead = n.Dead || name == "ready" || name == "restarts" || name == "state" && !o.Crictl
		n.Sandboxes = n.Sandboxes || name == "ip"
	}
	return n
}

// ManagedPod is what sync or apply knows of a pod and its runtime does not.
type ManagedPod struct {
	Init    map[string]bool // containers, by id
	Unready map[string]bool // those whose probe does not pass, by id
	// Unprobed are those with a probe that is not made any more, by id.
	Unprobed map[string]bool
	Missing  map[string]Waiting // why containers wait that the runtime does not have yet, by name
}

// podResult is how a pod is, as far as its containers tell it.
type podResult struct {
	ready, containers int  // without init containers, where those are known, else without those that have done their work
	runs              bool // one does
	unprobed          bool // one that runs may be ready or not
	restarts          uint32
	state             string
	tone              tone
}

// resultOf looks at the newest attempt of each container. One that debugs another is not of the pod, as an ephemeral
// container for kubectl.
func resultOf(p pod, o Options) podResult {
	newest := map[string]container{}
	for _, c := range o.Members[p.GetId()] {
		if had := newest[containerName(c)]; c.GetLabels()[kube.LabelDebug] == "" && (had == nil || containerAttempt(c) >= containerAttempt(had)) {
			newest[containerName(c)] = c
		}
	}
	var r podResult
	managed := o.Managed[p.GetId()]
	ready := p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	var of outstanding
	if ready { // else they are not to be made
		r.containers, of.missing = managed.missing(newest)
	}
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		c := newest[name]
		r.restarts += restarts(c)
		s := o.Statuses[c.GetId()].GetStatus()
		if kube.IsDoneInit(s, newest) {
			continue
		}
		if !managed.Init[c.GetId()] {
			r.containers++
		}
		_, waits := o.Waiting[c.GetId()]
		switch {
		case waits:
			of.waiting = c
		case c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING:
			r.runs = true
			switch {
			case kube.IsPaused(c):
				of.paused = c
			case managed.Unready[c.GetId()]:
				of.unready = c
			case managed.Unprobed[c.GetId()]:
				of.unready, r.unprobed = c, true
			case !managed.Init[c.GetId()]:
				r.ready++
			}
		case c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED:
			of.created = c
		case c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s == nil:
			of.unknown = c
		case s.GetExitCode() != 0:
			of.failed = c
		}
	}
	r.state, r.tone = of.word(r, ready, o)
	return r
}

// missing counts the containers that the runtime does not have, and returns why one of them waits.
func (k ManagedPod) missing(has map[string]container) (n int, why *Waiting) {
	for _, name := range slices.Sorted(maps.Keys(k.Missing)) {
		if has[name] != nil {
			continue // made since
		}
		n++
		if w := k.Missing[name]; why == nil || isCreating(why.Reason) {
			why = &w
		}
	}
	return n, why
}

// outstanding are the containers of a pod that say more of it than one that runs, one of
// each kind.
type outstanding struct {
	failed, waiting, created, unknown, unready, paused container // unready: by a probe, or for all that is known
	missing                                            *Waiting
}

// word returns the state of the pod.
func (of outstanding) word(r podResult, ready bool, o Options) (string, tone) {
	switch {
	case of.waiting != nil:
		return o.Waiting[of.waiting.GetId()].text(o), bad
	case of.failed != nil:
		return failedWord(o.Statuses[of.failed.GetId()].GetStatus(), ready)
	case r.runs && !ready:
		return "SandboxNotReady", bad
	case of.missing != nil:
		return of.missing.text(o), of.missing.tone()
	case of.unknown != nil:
		return enumWord(of.unknown.GetState().String()), warn
	case of.paused != nil:
		return "Paused", warn
	case r.runs && of.created == nil && of.unready != nil:
		return "Running", warn
	case r.runs && of.created == nil:
		return "Running", good
	case of.created != nil && ready:
		return "Created", warn
	case r.containers == 0 && ready:
		return "NoContainers", warn
	case r.containers == 0 || of.created != nil:
		return "Stopped", faint
	}
	return "Completed", faint
}

func (w Waiting) tone() tone {
	if isCreating(w.Reason) {
		return warn
	}
	return bad
}

// isCreating reports whether a container waits for nothing but its turn.
func isCreating(reason string) bool {
	return reason == "ContainerCreating" || reason == "PodInitializing"
}

// failedWord returns the state of a pod with a container that has failed. Who stops a pod kills what is in it.
func failedWord(s *runtimeapi.ContainerStatus, ready bool) (string, tone) {
	if reason := s.GetReason(); reason != "" && reason != "Error" {
		return reason, bad
	}
	if !ready && (s.GetExitCode() == 137 || s.GetExitCode() == 143) {
		return "Stopped", faint
	}
	return fmt.Sprintf("Error (%d)", s.GetExitCode()), bad
}

// FailedPod returns the first pod that the table shows as failed, nil for none.
func FailedPod(pods []*runtimeapi.PodSandbox, o Options) *runtimeapi.PodSandbox {
	return firstPod(pods, o, func(r podResult) bool { return r.tone == bad })
}

// UnprobedPod returns the first pod of which the table does not know whether it is ready, nil for none.
func UnprobedPod(pods []*runtimeapi.PodSandbox, o Options) *runtimeapi.PodSandbox {
	return firstPod(pods, o, func(r podResult) bool { return r.unprobed })
}

func firstPod(pods []*runtimeapi.PodSandbox, o Options, is func(podResult) bool) *runtimeapi.PodSandbox {
	if i := slices.IndexFunc(pods, func(p pod) bool { return is(resultOf(p, o)) }); i >= 0 && o.ForPeople() {
		return pods[i]
	}
	return nil
}

// podState returns how the pod is; with crictl's columns, how its sandbox is.
func podState(p pod, o Options) string {
	switch {
	case o.Crictl:
		return enumWord(p.GetState().String())
	case o.deleted:
		return "Deleted"
	}
	return resultOf(p, o).state
}

func podIP(p pod, o Options) string {
	s := o.Sandboxes[p.GetId()].GetStatus()
	if s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE && s != nil {
		return "(host)"
	}
	return cmp.Or(s.GetNetwork().GetIp(), unknownCell)
}

func podName(p pod) string {
	return cmp.Or(p.GetMetadata().GetName(), p.GetLabels()[kube.LabelPodName])
}

func podNamespace(p pod) string {
	return cmp.Or(p.GetMetadata().GetNamespace(), p.GetLabels()[kube.LabelPodNamespace])
}

func podAttempt(p pod) uint32 { return p.GetMetadata().GetAttempt() }

// Pods writes a list of pod sandboxes, the newest first.
func Pods(w io.Writer, r *runtimeapi.ListPodSandboxResponse, o Options) error {
	rows := newestFirst(r.GetItems())
	return render(w, view{
		fallback: Table, items: messages(rows), key: "items", ranks: each(rows, newestRank[pod]), ids: each(rows, pod.GetId), names: each(rows, podReference),
		table: func(w io.Writer, o Options) error {
			return writeRanked(w, rows, asCrictl(podColumns, crictlPodColumns, o), newestRank[pod], o)
		},
		long: func(w io.Writer, o Options) error { return longPods(w, rows, o) },
	}, o)
}

// podReference returns namespace/pod, or the id where these are not known.
func podReference(p pod) string {
	if podName(p) == "" || podNamespace(p) == "" {
		return p.GetId()
	}
	return podNamespace(p) + "/" + podName(p)
}
