package output

import (
	"cmp"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type event = *runtimeapi.ContainerEventResponse

// eventColumns are those of a table that grows: how wide their cells will be has to be
// known before they are.
var eventColumns = []column[event]{
	{name: "TIME", width: len("2006-01-02T15:04:05.000Z"), value: func(e event, o Options) string {
		if e.GetCreatedAt() <= 0 {
			return unknownCell
		}
		return time.Unix(0, e.GetCreatedAt()).In(o.location()).Format("2006-01-02T15:04:05.000Z07:00") // of one length
	}},
	{name: "EVENT", width: len("Created"), value: func(e event, _ Options) string {
		return enumWord(strings.TrimSuffix(e.GetContainerEventType().String(), "_EVENT"))
	}},
	{name: "CONTAINER", width: shortLength, value: func(e event, o Options) string { return shortID(e.GetContainerId(), o) }},
	{name: "POD", width: 24, value: func(e event, _ Options) string {
		pod := e.GetPodSandboxStatus().GetMetadata()
		return orUnknown(pod.GetNamespace()) + "/" + orUnknown(pod.GetName())
	}},
	{name: "NAME", width: 16, value: func(e event, _ Options) string { return cmp.Or(eventContainer(e).GetMetadata().GetName(), "(pod)") }},
	{name: "EXIT", wide: true, width: len("EXIT"), value: func(e event, _ Options) string {
		c := eventContainer(e)
		if c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			return unknownCell
		}
		return strconv.Itoa(int(c.GetExitCode()))
	}},
	{name: "REASON", wide: true, width: len("Completed"), value: func(e event, _ Options) string { return cmp.Or(eventContainer(e).GetReason(), unknownCell) }},
	{name: "POD ID", wide: true, width: shortLength, value: func(e event, o Options) string { return shortID(e.GetPodSandboxStatus().GetId(), o) }},
}

// eventContainer is the status of the container that an event is about; nil
// for one about the pod itself, and where the runtime does not send it.
func eventContainer(e event) *runtimeapi.ContainerStatus {
	for _, c := range e.GetContainersStatuses() {
		if c.GetId() == e.GetContainerId() {
			return c
		}
	}
	return nil
}

// Events writes container events as they come: a line each for people, a
// document each for machines. Its default is crictl's JSON.
type Events struct {
	w      io.Writer
	o      Options
	shown  []column[event]
	widths []int
}

// NewEvents makes a writer of events and writes the header of its table.
func NewEvents(w io.Writer, o Options) (_ *Events, err error) {
	e := &Events{w: w, o: o}
	if o.Format.Kind != Table && o.Format.Kind != Wide {
		return e, nil
	}
	if e.shown, err = choose(eventColumns, o); err != nil {
		return nil, err
	}
	e.widths = each(e.shown, func(c column[event]) int { return max(c.width, len(c.name)) })
	if o.NoHeaders {
		return e, nil
	}
	return e, e.line(each(e.shown, func(c column[event]) string { return c.name }))
}

// Write writes one event.
func (e *Events) Write(one *runtimeapi.ContainerEventResponse) error {
	if e.shown != nil {
		return e.line(each(e.shown, func(c column[event]) string { return Sanitize(c.value(one, e.o)) }))
	}
	if e.o.Format.Kind == YAML { // else the documents could not be told apart
		if _, err := io.WriteString(e.w, "---\n"); err != nil {
			return err
		}
	}
	return render(e.w, view{fallback: JSON, items: messages([]event{one}), names: []string{one.GetContainerId()}}, e.o)
}

// line writes cells under each other. A cell that is wider than any before
// moves its column; on a terminal it is cut to leave the others their room.
func (e *Events) line(cells []string) error {
	var b strings.Builder
	room := e.o.Width
	for i, cell := range cells {
		if e.o.Width > 0 && !e.o.NoTrunc {
			others := 0
			for _, width := range e.widths[i+1:] {
				others += gap + width
			}
			cell = runewidth.Truncate(cell, max(min(room, e.widths[i]), room-others, minShrunk), "…")
		}
		e.widths[i] = max(e.widths[i], runewidth.StringWidth(cell))
		room -= e.widths[i] + gap
		b.WriteString(runewidth.FillRight(cell, e.widths[i]+gap))
	}
	_, err := io.WriteString(e.w, strings.TrimRight(b.String(), " ")+"\n")
	return err
}
