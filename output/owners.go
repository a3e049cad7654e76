package output

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

const (
	OwnerContainer = "container"
	OwnerPod       = "pod" // the pod's sandbox, a process in its cgroup outside all containers, or a forwarded port
	OwnerUnit      = "unit"
	OwnerKernel    = "kernel"
	OwnerHost      = "host"
)

// Owner is a row of `crishim who`: the owner of a process or port on this machine.
type Owner struct {
	Target      string `json:"target"` // as the user named it
	Kind        string `json:"kind"`   // process, listener or forward
	Owner       string `json:"owner"`  // container, pod, unit, kernel or host
	Namespace   string `json:"namespace,omitempty"`
	Pod         string `json:"pod,omitempty"`
	PodID       string `json:"podId,omitempty"`
	Container   string `json:"container,omitempty"`
	ContainerID string `json:"containerId,omitempty"`
	Unit        string `json:"unit,omitempty"`
	PID         int    `json:"pid,omitempty"`
	Command     string `json:"command,omitempty"`
	Cgroup      string `json:"cgroup,omitempty"`
	Detail      string `json:"detail,omitempty"`
}

// Title returns the owner's name: namespace/pod/container, namespace/pod or a unit.
func (w Owner) Title(o Options) string {
	switch {
	case w.Pod != "":
		return strings.TrimSuffix(fmt.Sprintf("%s/%s/%s", w.Namespace, w.Pod, w.Container), "/")
	case w.ContainerID != "":
		return "container " + cmp.Or(w.Container, shortID(w.ContainerID, o))
	case w.Owner == OwnerHost:
		return "this machine"
	case w.Owner == OwnerKernel:
		return "the kernel"
	}
	return w.Unit
}

var ownerColumns = []column[Owner]{
	{name: "TARGET", shrink: true, least: 12, start: true, value: func(w Owner, _ Options) string { return w.Target }},
	{name: "KIND", value: func(w Owner, _ Options) string { return w.Kind }},
	{name: "OWNER", value: Owner.Title, tone: func(w Owner, _ Options) tone {
		if w.Owner == OwnerContainer || w.Owner == OwnerPod {
			return good
		}
		return plain
	}},
	{name: "CONTAINER", wide: true, value: func(w Owner, o Options) string { return cmp.Or(shortID(w.ContainerID, o), unknownCell) }},
	{name: "POD ID", wide: true, value: func(w Owner, o Options) string { return cmp.Or(shortID(w.PodID, o), unknownCell) }},
	{name: "PID", number: by(func(w Owner) int64 { return int64(w.PID) }), value: func(w Owner, _ Options) string {
		if w.PID == 0 {
			return unknownCell
		}
		return fmt.Sprint(w.PID)
	}},
	{name: "COMMAND", value: func(w Owner, _ Options) string { return cmp.Or(w.Command, unknownCell) }},
	{name: "CGROUP", wide: true, value: func(w Owner, _ Options) string { return cmp.Or(w.Cgroup, unknownCell) }},
	{name: "DETAIL", prose: true, value: func(w Owner, _ Options) string { return w.Detail }},
}

// Owners writes owners in the order in which they were found.
func Owners(w io.Writer, owners []Owner, o Options) error {
	return render(w, view{
		fallback: Table, key: "owners", names: each(owners, func(w Owner) string { return w.Title(o) }),
		ids:   each(owners, func(w Owner) string { return cmp.Or(w.ContainerID, w.PodID, w.Unit) }),
		items: documents(owners),
		table: func(w io.Writer, o Options) error { return writeTable(w, owners, ownerColumns, o) },
	}, o)
}
