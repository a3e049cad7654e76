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
	{name: "POD ID", value: func(p pod, o Options) string {
		if o.Managed[p.GetId()].NoSandbox {
			return unknownCell
		}
		return shortID(p.GetId(), o)
	}},
	{name: "CREATED", spare: 5, number: pod.GetCreatedAt, value: func(p pod, o Options) string { return age(p.GetCreatedAt(), o) }},
	{name: "READY", value: func(p pod, o Options) string {
		r := resultOf(p, o)
		if r.unprobed {
			return fmt.Sprintf("?/%d", r.Containers)
		}
		return fmt.Sprintf("%d/%d", r.Ready, r.Containers)
	}},
	{
		name: "STATE", shrink: true, least: len("CrashLoopBackOff"), width: len("CrashLoopBackOff"), value: podState,
		tone: func(p pod, o Options) tone { return resultOf(p, o).tone() },
	},
	{name: "RESTARTS", spare: 7, value: func(p pod, o Options) string { return fmt.Sprint(resultOf(p, o).Restarts) }},
	{name: "NAME", shrink: true, least: 10, value: func(p pod, _ Options) string { return orUnknown(podName(p)) }},
	{name: "NAMESPACE", shrink: true, spare: 6, value: namespaceCell},
	{name: "SANDBOX", spare: 1, value: func(p pod, _ Options) string { return enumWord(p.GetState().String()) }},
	{name: "ATTEMPT", spare: 1, number: by(podAttempt), value: func(p pod, _ Options) string { return fmt.Sprint(podAttempt(p)) }},
	{name: "RUNTIME", spare: 1, value: func(p pod, _ Options) string { return cmp.Or(p.GetRuntimeHandler(), "(default)") }},
	{name: "IP", wide: true, value: podIP}, // wide, because it needs a call for each pod
	{name: "UID", wide: true, value: func(p pod, _ Options) string { return p.GetMetadata().GetUid() }},
}

// crictl's STATE is the sandbox's state.
var crictlPodColumns = crictlColumns{
	plain: []string{"POD ID", "CREATED", "STATE", "NAME", "NAMESPACE", "ATTEMPT", "RUNTIME"},
	wide:  []string{"UID"},
}

// PodNeeds returns the additional data for a table of pods. If Needs.Dead is set, the table also needs the pods'
// containers (Options.Members) and the state that sync or apply records (Options.Managed).
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

// ManagedPod is the part of a pod's state that sync or apply records and the runtime does not have.
type ManagedPod struct {
	NoSandbox  bool
	Managed    bool   // the sync or apply process that manages the pod still runs
	Reason     string // failure of the pod as a whole
	Containers []ManagedContainer
}

// ManagedContainer is a container of the manifest. Its state comes from the runtime.
type ManagedContainer struct {
	Name, ID string // id of the newest attempt
	Probed   bool   // has a startup or readiness probe, which determines Ready
	kube.Container
}

// of returns the managed state of a container.
func (p ManagedPod) of(c container) (m ManagedContainer) {
	if i := slices.IndexFunc(p.Containers, func(m ManagedContainer) bool { return m.Name == containerName(c) }); i >= 0 {
		m = p.Containers[i]
	}
	if m.ID != c.GetId() { // m describes another attempt than c, so its Waits and Probed do not apply
		m.Waits, m.Probed = "", false
	}
	if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING || c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && !p.Managed {
		m.Waits = ""
	}
	return m
}

// podResult is the state of a pod derived from its containers.
type podResult struct {
	kube.PodState
	unprobed bool // a running container has an unknown readiness
}

// resultOf derives the state from the newest attempt of each container. It ignores debug containers, as kubectl ignores
// ephemeral containers.
func resultOf(p pod, o Options) (r podResult) {
	newest := map[string]container{}
	for _, c := range o.Members[p.GetId()] {
		if had := newest[containerName(c)]; c.GetLabels()[kube.LabelDebug] == "" && (had == nil || containerAttempt(c) >= containerAttempt(had)) {
			newest[containerName(c)] = c
		}
	}
	known := o.Managed[p.GetId()]
	facts := kube.Pod{
		NoSandbox: known.NoSandbox, Ready: p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY, Managed: known.Managed, Reason: known.Reason,
	}
	names := slices.Sorted(maps.Keys(newest))
	for _, m := range slices.Backward(known.Containers) { // the loop prepends: init containers end up first, in manifest order
		if names = slices.DeleteFunc(names, func(name string) bool { return name == m.Name }); newest[m.Name] != nil || m.ID == "" {
			names = append([]string{m.Name}, names...)
		}
	}
	for _, name := range names {
		c := newest[name]
		if c == nil {
			i := slices.IndexFunc(known.Containers, func(m ManagedContainer) bool { return m.Name == name })
			missing := known.Containers[i].Container
			missing.Missing = true
			facts.Containers = append(facts.Containers, missing)
			continue
		}
		m, s := known.of(c), o.Statuses[c.GetId()].GetStatus()
		m.State, m.Paused, m.Restarts, m.ExitCode, m.Reason = c.GetState(), kube.IsPaused(c), int(restarts(c)), s.GetExitCode(), s.GetReason()
		running := m.State == runtimeapi.ContainerState_CONTAINER_RUNNING
		if s == nil && m.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			m.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		}
		r.unprobed = r.unprobed || running && m.Probed && !known.Managed
		m.Ready = running && !m.Paused && (!m.Probed || m.Ready && known.Managed)
		m.Init = m.Init || kube.IsDoneInit(s, newest)
		facts.Containers = append(facts.Containers, m.Container)
	}
	r.PodState = facts.State()
	return r
}

func (r podResult) text(o Options) string { return waiting(r.Word, r.Next, o) }

func (r podResult) tone() tone { return StateTone(r.Word, r.Ready == r.Containers) }

// StateTone returns the colour for the state of a pod or container.
func StateTone(word string, ready bool) Tone {
	switch {
	case word == kube.Running && ready:
		return good
	case word == kube.Completed, word == kube.Stopped:
		return faint
	case word == kube.Running, word == kube.Paused, word == kube.Unknown, word == kube.NoContainers, kube.IsCreating(word):
		return warn
	}
	return bad
}

// FailedPod returns the first pod that the table shows as failed, or nil.
func FailedPod(pods []*runtimeapi.PodSandbox, o Options) *runtimeapi.PodSandbox {
	return firstPod(pods, o, func(r podResult) bool { return r.tone() == bad })
}

// UnprobedPod returns the first pod whose readiness is unknown, or nil.
func UnprobedPod(pods []*runtimeapi.PodSandbox, o Options) *runtimeapi.PodSandbox {
	return firstPod(pods, o, func(r podResult) bool { return r.unprobed })
}

func firstPod(pods []*runtimeapi.PodSandbox, o Options, is func(podResult) bool) *runtimeapi.PodSandbox {
	if i := slices.IndexFunc(pods, func(p pod) bool { return is(resultOf(p, o)) }); i >= 0 && o.ForPeople() {
		return pods[i]
	}
	return nil
}

// podState returns the pod's state, or the sandbox's with Options.Crictl.
func podState(p pod, o Options) string {
	switch {
	case o.Crictl:
		return enumWord(p.GetState().String())
	case o.deleted:
		return "Deleted"
	}
	return resultOf(p, o).text(o)
}

func namespaceCell(p pod, o Options) string {
	if o.Managed[p.GetId()].NoSandbox {
		return cmp.Or(podNamespace(p), unknownCell)
	}
	return orUnknown(podNamespace(p))
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

// Pods writes a list of pod sandboxes, newest first.
func Pods(w io.Writer, r *runtimeapi.ListPodSandboxResponse, o Options) error {
	rows := newestFirst(r.GetItems())
	return render(w, view{
		fallback: Table, items: messages(rows), key: "items", ids: each(rows, pod.GetId), names: each(rows, podReference),
		table: func(w io.Writer, o Options) error {
			return writeTable(w, rows, asCrictl(podColumns, crictlPodColumns, o), o)
		},
		long: func(w io.Writer, o Options) error { return longPods(w, rows, o) },
	}, o)
}

// podReference returns namespace/pod, or the id if a part is unknown.
func podReference(p pod) string {
	if podName(p) == "" || podNamespace(p) == "" {
		return p.GetId()
	}
	return podNamespace(p) + "/" + podName(p)
}
