package output

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

type (
	container = *runtimeapi.Container
	pod       = *runtimeapi.PodSandbox
)

type made interface {
	GetCreatedAt() int64
	GetId() string
}

// newestFirst sorts by creation time, newest first, then by id.
func newestFirst[T made](rows []T) []T {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b T) int {
		return cmp.Or(cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), cmp.Compare(a.GetId(), b.GetId()))
	})
	return rows
}

// containerColumns are the columns of a table of containers. On a narrow terminal, columns with spare are dropped, and the
// name and state of each container remain.
var containerColumns = []column[container]{
	{name: "CONTAINER", spare: 6, value: func(c container, o Options) string { return shortID(c.GetId(), o) }},
	{name: "IMAGE", shrink: true, least: 15, start: true, spare: 3, value: containerImage},
	{name: "CREATED", spare: 4, number: container.GetCreatedAt, value: func(c container, o Options) string { return age(c.GetCreatedAt(), o) }},
	{name: "STATE", shrink: true, least: len("Exited (137, OOMKilled) 3m ago"), width: len("Exited (137, OOMKilled) 3m ago"), value: containerState, tone: containerTone},
	{name: "NAME", shrink: true, width: 12, value: func(c container, _ Options) string { return orUnknown(containerName(c)) }},
	{name: "RESTARTS", spare: 5, number: by(restarts), value: func(c container, _ Options) string { return fmt.Sprint(restarts(c)) }},
	{name: "ATTEMPT", wide: true, number: by(containerAttempt), value: func(c container, _ Options) string { return fmt.Sprint(containerAttempt(c)) }},
	{name: "POD ID", spare: 1, value: func(c container, o Options) string { return shortID(c.GetPodSandboxId(), o) }},
	{name: "POD", shrink: true, least: 12, value: func(c container, o Options) string { return orUnknown(podNameOf(c, o)) }},
	{name: "NAMESPACE", shrink: true, spare: 2, value: func(c container, o Options) string { return orUnknown(podNamespaceOf(c, o)) }},
	{name: "IMAGE ID", wide: true, value: func(c container, o Options) string { return shortID(c.GetImageId(), o) }},
	{name: "IMAGE REF", wide: true, shrink: true, value: func(c container, _ Options) string { return c.GetImageRef() }},
	{name: "EXIT", wide: true, value: ofStatus(true, func(s *runtimeapi.ContainerStatus, _ Options) string { return fmt.Sprint(s.GetExitCode()) })},
	{name: "REASON", wide: true, value: ofStatus(true, func(s *runtimeapi.ContainerStatus, _ Options) string { return s.GetReason() })},
	{name: "STARTED", wide: true, value: ofStatus(false, func(s *runtimeapi.ContainerStatus, o Options) string { return age(s.GetStartedAt(), o) })},
	{name: "FINISHED", wide: true, value: ofStatus(true, func(s *runtimeapi.ContainerStatus, o Options) string { return age(s.GetFinishedAt(), o) })},
	{name: "PID", wide: true, value: containerPID},
	{name: "COMMAND", wide: true, shrink: true, value: containerCommand},
	{name: "PORTS", wide: true, shrink: true, value: containerPorts},
	{name: "MOUNTS", wide: true, shrink: true, value: ofStatus(false, func(s *runtimeapi.ContainerStatus, _ Options) string {
		return strings.Join(each(s.GetMounts(), mountText), ", ")
	})},
}

// crictlColumns are crictl's columns of a list and the additional ones of -o wide.
type crictlColumns struct{ plain, wide []string }

var crictlContainerColumns = crictlColumns{
	plain: []string{"CONTAINER", "IMAGE", "CREATED", "STATE", "NAME", "ATTEMPT", "POD ID", "POD", "NAMESPACE"},
	wide:  []string{"IMAGE ID", "IMAGE REF"},
}

// asCrictl returns the columns unchanged unless Options.Crictl is set. With Options.Crictl, crictl's columns are the
// default, its additional columns need -o wide, and all others are shown only if --columns names them.
func asCrictl[T any](columns []column[T], as crictlColumns, o Options) []column[T] {
	if !o.Crictl {
		return columns
	}
	columns = slices.Clone(columns)
	for i, c := range columns {
		columns[i].wide = !slices.Contains(as.plain, c.name)
		columns[i].named = columns[i].wide && !slices.Contains(as.wide, c.name)
	}
	return columns
}

// Needs lists data that the columns require in addition to the list itself.
type Needs struct {
	Dead      bool // needs the status of exited containers
	Statuses  bool // needs the status of all containers
	Verbose   bool // needs statuses with the runtime's verbose info
	Sandboxes bool // needs the verbose status of sandboxes
}

func ContainerNeeds(o Options) (n Needs) {
	shown, err := choose(asCrictl(containerColumns, crictlContainerColumns, o), o)
	if err != nil || o.Quiet || o.Format.ForMachines() {
		return n
	}
	for _, name := range append(each(shown, func(c column[container]) string { return key(c.name) }), key(strings.TrimPrefix(o.Sort, "-"))) {
		switch name {
		case "state":
			n.Dead = n.Dead || !o.Crictl
		case "exit", "reason", "finished":
			n.Dead = true
		case "started", "mounts":
			n.Statuses = true
		case "pid", "command":
			n.Statuses, n.Verbose = true, true
		case "ports":
			n.Sandboxes = true
		}
	}
	return n
}

// containerState returns the state. For an exited container it adds the reason and the time.
func containerState(c container, o Options) string {
	word := enumWord(c.GetState().String())
	if o.Crictl {
		return word
	}
	if o.deleted {
		return "Deleted"
	}
	if m := o.Managed[c.GetPodSandboxId()].of(c); m.Waits != "" {
		return waiting(m.Waits, m.Next, o)
	}
	s := o.Statuses[c.GetId()].GetStatus()
	switch {
	case kube.IsPaused(c):
		return "Paused"
	case c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetState() != c.GetState():
		return word
	}
	switch reason := s.GetReason(); reason {
	case "StartError", "ContainerCannotRun": // reasons of containerd and Docker if a command could not be started
		word = reason
	case "", "Error", "Completed": // these reasons add nothing to the exit status
		word = fmt.Sprintf("%s (%d)", word, s.GetExitCode())
	default:
		word = fmt.Sprintf("%s (%d, %s)", word, s.GetExitCode(), reason)
	}
	if s.GetFinishedAt() > 0 {
		word += " " + ago(s.GetFinishedAt(), o)
	}
	return word
}

const waitsUntil = ", next in "

// waiting returns a state with the time of the next start, if known.
func waiting(word string, next time.Time, o Options) string {
	if next.IsZero() {
		return word
	}
	return word + waitsUntil + duration.HumanDuration(max(next.Sub(o.Now), 0))
}

// FailedContainer returns the first container that the table shows as failed, or nil.
func FailedContainer(containers []*runtimeapi.Container, o Options) *runtimeapi.Container {
	if i := slices.IndexFunc(containers, func(c container) bool { return containerTone(c, o) == bad }); i >= 0 && o.ForPeople() {
		return containers[i]
	}
	return nil
}

func containerTone(c container, o Options) tone {
	waits := o.Managed[c.GetPodSandboxId()].of(c).Waits != ""
	switch s := o.Statuses[c.GetId()].GetStatus(); {
	case o.deleted:
		return faint
	case waits:
		return bad
	case kube.IsPaused(c):
		return warn
	case c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING:
		return good
	case c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED:
		return warn
	case s != nil && s.GetExitCode() != 0:
		return bad
	}
	return faint
}

// restarts returns the restart count: the kubelet's annotation, otherwise the attempt, which is the same number.
func restarts(c container) uint32 {
	if n, err := strconv.ParseUint(c.GetAnnotations()[kube.AnnotationRestartCount], 10, 32); err == nil {
		return uint32(n)
	}
	return containerAttempt(c)
}

// ofStatus returns a cell function that formats a container's status. If dead is set, the function returns unknownCell
// for a container that has not exited.
func ofStatus(dead bool, text func(*runtimeapi.ContainerStatus, Options) string) func(container, Options) string {
	return func(c container, o Options) string {
		s := o.Statuses[c.GetId()].GetStatus()
		if s == nil || dead && s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			return unknownCell
		}
		return cmp.Or(text(s, o), unknownCell)
	}
}

// mountText returns SOURCE:TARGET[:ro] of a mount.
func mountText(m *runtimeapi.Mount) string {
	text := cmp.Or(m.GetHostPath(), m.GetImage().GetImage()) + ":" + m.GetContainerPath()
	if m.GetReadonly() {
		text += ":ro"
	}
	return text
}

// containerPID returns the PID of a running container from the runtime's verbose info.
func containerPID(c container, o Options) string {
	var details struct {
		Pid int `json:"pid"`
	}
	info := o.Statuses[c.GetId()].GetInfo()
	if json.Unmarshal([]byte(info["info"]), &details) != nil || details.Pid == 0 {
		details.Pid, _ = strconv.Atoi(info["pid"]) // 0 if missing
	}
	if details.Pid == 0 || c.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return unknownCell
	}
	return fmt.Sprint(details.Pid)
}

// containerCommand returns a container's command line from the runtime's verbose info.
func containerCommand(c container, o Options) string {
	var details struct {
		Spec struct {
			Process struct {
				Args []string `json:"args"`
			} `json:"process"`
		} `json:"runtimeSpec"`
	}
	_ = json.Unmarshal([]byte(o.Statuses[c.GetId()].GetInfo()["info"]), &details) // some runtimes have no info, or not as JSON
	return cmp.Or(strings.Join(details.Spec.Process.Args, " "), unknownCell)
}

// PortMapping is a port in a runtime's verbose sandbox info or in the kubelet's annotation.
type PortMapping struct {
	ContainerPort int32  `json:"containerPort"`
	HostPort      int32  `json:"hostPort"`
	Protocol      any    `json:"protocol"` // "TCP", or a number of the CRI enum Protocol; missing: TCP
	CRIContainer  int32  `json:"container_port"`
	CRIHost       int32  `json:"host_port"`
	HostIP        string `json:"hostIP"`
	CRIHostIP     string `json:"host_ip"`
}

// Forwards reports whether the mapping forwards this host port and protocol; "" is any protocol. A mapping without a
// host IP, and an invalid address, are for any address.
func (p PortMapping) Forwards(host netip.AddrPort, protocol string) bool {
	ip, err := netip.ParseAddr(cmp.Or(p.HostIP, p.CRIHostIP))
	return cmp.Or(p.HostPort, p.CRIHost) == int32(host.Port()) && (protocol == "" || p.protocol() == protocol) &&
		(err != nil || !host.Addr().IsValid() || ip == host.Addr())
}

func (p PortMapping) protocol() string {
	switch v := p.Protocol.(type) {
	case string:
		return strings.ToLower(cmp.Or(v, "tcp"))
	case float64:
		return strings.ToLower(runtimeapi.Protocol(int32(v)).String())
	}
	return "tcp"
}

func (p PortMapping) String() string {
	text := fmt.Sprint(cmp.Or(p.ContainerPort, p.CRIContainer))
	if host := cmp.Or(p.HostPort, p.CRIHost); host != 0 {
		text = fmt.Sprint(host, "->", text)
		if ip := cmp.Or(p.HostIP, p.CRIHostIP); ip != "" {
			text = ip + ":" + text
		}
	}
	return text + "/" + p.protocol()
}

// SandboxPorts returns the port mappings in a runtime's verbose sandbox info.
func SandboxPorts(r *runtimeapi.PodSandboxStatusResponse) []PortMapping {
	var details struct {
		Ports  []PortMapping `json:"portMappings"`
		Config struct {
			Ports []PortMapping `json:"port_mappings"`
		} `json:"config"`
	}
	if json.Unmarshal([]byte(r.GetInfo()["info"]), &details) != nil {
		return nil
	}
	return append(details.Ports, details.Config.Ports...)
}

// containerPorts returns the ports in the kubelet's annotation of the container, otherwise those of its pod.
func containerPorts(c container, o Options) string {
	var ports []PortMapping
	if json.Unmarshal([]byte(c.GetAnnotations()[kube.AnnotationPorts]), &ports) != nil || len(ports) == 0 {
		ports = SandboxPorts(o.Sandboxes[c.GetPodSandboxId()])
	}
	return cmp.Or(strings.Join(each(ports, PortMapping.String), ", "), unknownCell)
}

// containerImage returns the image reference that the container was created from. With Options.Crictl it returns the
// image in the container's record, as crictl does; this is an id if a kubelet created the container. Ids are shortened.
func containerImage(c container, o Options) string {
	image := c.GetImage().GetImage()
	if !o.Crictl {
		image = cmp.Or(c.GetImage().GetUserSpecifiedImage(), image)
	}
	if isImageID(c, image) {
		return shortID(image, o)
	}
	return image
}

func isImageID(c container, image string) bool {
	return image == c.GetImageId() || image == c.GetImageRef() && len(strings.TrimPrefix(image, "sha256:")) == 64
}

// LacksImageNames reports whether the view of containers would show an id instead of an image's name.
func LacksImageNames(containers []container, o Options) bool {
	return !o.Quiet && !o.Crictl && !o.Format.ForMachines() && slices.ContainsFunc(containers, func(c container) bool {
		return isImageID(c, cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage()))
	})
}

// containerName returns the name in the metadata or, if a runtime leaves the metadata empty, in the kubelet's label.
func containerName(c container) string {
	return cmp.Or(c.GetMetadata().GetName(), c.GetLabels()[kube.LabelContainerName])
}

func containerAttempt(c container) uint32 { return c.GetMetadata().GetAttempt() }

// podNameOf returns the pod's name from the container's labels or, if it was created without kubelet labels, from its
// sandbox.
func podNameOf(c container, o Options) string {
	return cmp.Or(c.GetLabels()[kube.LabelPodName], o.Pods[c.GetPodSandboxId()].GetName())
}

func podNamespaceOf(c container, o Options) string {
	return cmp.Or(c.GetLabels()[kube.LabelPodNamespace], o.Pods[c.GetPodSandboxId()].GetNamespace())
}

// LacksPodNames reports whether the view needs Options.Pods: the view is a table or a list of names, and at least one
// container has no pod labels.
func LacksPodNames(containers []container, o Options) bool {
	if o.Quiet || o.Format.ForMachines() && o.Format.Kind != Name {
		return false
	}
	return slices.ContainsFunc(containers, func(c container) bool {
		return c.GetLabels()[kube.LabelPodName] == "" || c.GetLabels()[kube.LabelPodNamespace] == ""
	})
}

// Containers writes a list of containers, newest first.
func Containers(w io.Writer, r *runtimeapi.ListContainersResponse, o Options) error {
	rows := newestFirst(r.GetContainers())
	return render(w, view{
		fallback: Table, items: messages(rows), key: "containers", ids: each(rows, container.GetId),
		names: each(rows, func(c container) string { return containerReference(c, o) }),
		table: func(w io.Writer, o Options) error {
			return writeTable(w, rows, asCrictl(containerColumns, crictlContainerColumns, o), o)
		},
		long: func(w io.Writer, o Options) error { return longContainers(w, rows, o) },
	}, o)
}

// containerReference returns namespace/pod/container, or the id if a part is unknown.
func containerReference(c container, o Options) string {
	namespace, pod, name := podNamespaceOf(c, o), podNameOf(c, o), containerName(c)
	if namespace == "" || pod == "" || name == "" {
		return c.GetId()
	}
	return namespace + "/" + pod + "/" + name
}
