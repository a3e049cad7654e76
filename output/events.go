package output

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type event = *runtimeapi.ContainerEventResponse

type eventRow struct {
	event
	name, pod string
}

// ended returns the status of the exited container of a stopped event, or nil. Events of other types are ignored: their
// status may be newer than the event and already show an exit.
func (e eventRow) ended() *runtimeapi.ContainerStatus {
	c := eventContainer(e.event)
	if e.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT || c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		return nil
	}
	return c
}

// Time formats of constant width: the time of day on a terminal, otherwise with the date.
const (
	eventClock = "15:04:05.000"
	eventTime  = "2006-01-02T15:04:05.000Z07:00"
)

var eventColumns = []column[eventRow]{
	{name: "TIME", width: len(eventClock), value: func(e eventRow, o Options) string {
		if e.GetCreatedAt() <= 0 {
			return unknownCell
		}
		layout := eventTime
		if o.Terminal && !o.Crictl {
			layout = eventClock
		}
		return time.Unix(0, e.GetCreatedAt()).In(o.location()).Format(layout)
	}},
	{name: "EVENT", width: len("Created"), tone: eventTone, value: func(e eventRow, _ Options) string {
		return enumWord(strings.TrimSuffix(e.GetContainerEventType().String(), "_EVENT"))
	}},
	{name: "CONTAINER", spare: 2, width: shortLength, value: func(e eventRow, o Options) string { return shortID(e.GetContainerId(), o) }},
	{name: "POD", shrink: true, least: 20, width: 24, value: func(e eventRow, _ Options) string { return e.pod }},
	{name: "NAME", shrink: true, width: 12, value: func(e eventRow, _ Options) string { return e.name }},
	{name: "EXIT", width: len("EXIT"), value: func(e eventRow, _ Options) string {
		if e.ended() == nil {
			return unknownCell
		}
		return strconv.Itoa(int(e.ended().GetExitCode()))
	}},
	{name: "REASON", shrink: true, spare: 3, width: len("Completed"), value: func(e eventRow, _ Options) string {
		return cmp.Or(e.ended().GetReason(), unknownCell)
	}},
	{name: "POD ID", wide: true, spare: 1, width: shortLength, value: func(e eventRow, o Options) string { return shortID(e.GetPodSandboxStatus().GetId(), o) }},
}

func eventTone(e eventRow, _ Options) tone {
	switch e.GetContainerEventType() {
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return good
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		if e.ended().GetExitCode() != 0 {
			return bad
		}
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return faint
	}
	return plain
}

// eventContainer returns the status of the event's container. It returns nil if the event is about the pod itself or if
// the runtime does not send the status.
func eventContainer(e event) *runtimeapi.ContainerStatus {
	for _, c := range e.GetContainersStatuses() {
		if c.GetId() == e.GetContainerId() {
			return c
		}
	}
	return nil
}

// Events writes container events as they arrive, as table rows or as one document each. The default format is crictl's
// JSON.
type Events struct {
	w     io.Writer
	o     Options
	table *growing[eventRow]
	names map[string]eventRow // by container id, because a deletion event has no names
}

func NewEvents(w io.Writer, o Options) *Events {
	return &Events{w: w, o: o, names: map[string]eventRow{}}
}

// Header writes the header of a table. Without a call, the first event writes it, so that a stream that fails at once
// has no header.
func (e *Events) Header() (err error) {
	if e.table != nil || e.o.Format.Kind != Table && e.o.Format.Kind != Wide {
		return nil
	}
	columns := slices.Clone(eventColumns)
	if !e.o.Terminal || e.o.Crictl {
		columns[0].width = len("2006-01-02T15:04:05.000Z")
	}
	e.table, err = grow(e.w, nil, columns, e.o)
	return err
}

// Known records the names of containers that exist before the first event.
func (e *Events) Known(containers []*runtimeapi.Container) {
	for _, c := range containers {
		namespace, pod := podNamespaceOf(c, e.o), podNameOf(c, e.o)
		e.names[c.GetId()] = eventRow{name: containerName(c), pod: orUnknown(namespace) + "/" + orUnknown(pod)}
	}
}

func (e *Events) Write(one *runtimeapi.ContainerEventResponse) error {
	if err := e.Header(); err != nil {
		return err
	}
	if e.table != nil {
		return e.table.row(e.named(one), e.o)
	}
	return renderOne(e.w, view{fallback: JSON, items: messages([]event{one}), names: []string{one.GetContainerId()}}, e.o)
}

// named returns the row of an event with the names from this or an earlier event.
func (e *Events) named(one event) eventRow {
	status := one.GetPodSandboxStatus()
	pod := orUnknown(status.GetMetadata().GetNamespace()) + "/" + orUnknown(status.GetMetadata().GetName())
	for _, c := range one.GetContainersStatuses() {
		e.names[c.GetId()] = eventRow{name: c.GetMetadata().GetName(), pod: pod}
	}
	if status.GetId() != "" && status.GetId() == one.GetContainerId() {
		return eventRow{one, "(pod)", pod}
	}
	known := e.names[one.GetContainerId()]
	if status.GetMetadata() == nil {
		pod = cmp.Or(known.pod, pod)
	}
	if one.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		delete(e.names, one.GetContainerId())
	}
	return eventRow{one, orUnknown(known.name), pod}
}

// renderOne writes one document of a stream.
func renderOne(w io.Writer, v view, o Options) error {
	if o.Format.Kind == YAML { // separates the documents
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
	}
	return render(w, v, o)
}
