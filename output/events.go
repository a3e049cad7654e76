package output

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventTime is RFC 3339 of one length, so that lines stay aligned.
const eventTime = "2006-01-02T15:04:05.000Z07:00"

// eventColumn is a column of a table that grows: how wide its cells will be
// has to be known before they are.
type eventColumn struct {
	column[*runtimeapi.ContainerEventResponse]
	width int
}

var eventColumns = []eventColumn{
	{column[*runtimeapi.ContainerEventResponse]{name: "TIME", value: func(e *runtimeapi.ContainerEventResponse, o Options) string {
		if e.GetCreatedAt() <= 0 {
			return unknownCell
		}
		return time.Unix(0, e.GetCreatedAt()).In(o.location()).Format(eventTime)
	}}, len("2006-01-02T15:04:05.000Z")},
	{column[*runtimeapi.ContainerEventResponse]{name: "EVENT", value: func(e *runtimeapi.ContainerEventResponse, _ Options) string {
		return enumWord(eventWord(e))
	}}, len("Created")},
	{column[*runtimeapi.ContainerEventResponse]{name: "CONTAINER", value: func(e *runtimeapi.ContainerEventResponse, o Options) string {
		return shortID(e.GetContainerId(), o)
	}}, shortLength},
	{column[*runtimeapi.ContainerEventResponse]{name: "POD", value: func(e *runtimeapi.ContainerEventResponse, _ Options) string {
		pod := e.GetPodSandboxStatus().GetMetadata()
		return orUnknown(pod.GetNamespace()) + "/" + orUnknown(pod.GetName())
	}}, 24},
	{column[*runtimeapi.ContainerEventResponse]{name: "NAME", value: func(e *runtimeapi.ContainerEventResponse, _ Options) string {
		return cmp.Or(eventContainer(e).GetMetadata().GetName(), "(pod)")
	}}, 16},
	{column[*runtimeapi.ContainerEventResponse]{name: "EXIT", wide: true, value: func(e *runtimeapi.ContainerEventResponse, _ Options) string {
		c := eventContainer(e)
		if c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			return unknownCell
		}
		return strconv.Itoa(int(c.GetExitCode()))
	}}, len("EXIT")},
	{column[*runtimeapi.ContainerEventResponse]{name: "REASON", wide: true, value: func(e *runtimeapi.ContainerEventResponse, _ Options) string {
		return cmp.Or(eventContainer(e).GetReason(), unknownCell)
	}}, len("Completed")},
	{column[*runtimeapi.ContainerEventResponse]{name: "POD ID", wide: true, value: func(e *runtimeapi.ContainerEventResponse, o Options) string {
		return shortID(e.GetPodSandboxStatus().GetId(), o)
	}}, shortLength},
}

// EventColumns are the columns of the events table.
var EventColumns = func() Columns {
	var names Columns
	for _, c := range eventColumns {
		names = append(names, key(c.name))
	}
	return names
}()

// eventContainer is the status of the container that an event is about; nil
// for one about the pod itself, and where the runtime does not send it.
func eventContainer(e *runtimeapi.ContainerEventResponse) *runtimeapi.ContainerStatus {
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
	shown  []eventColumn
	widths []int
}

// NewEvents makes a writer of events and writes the header of its table.
func NewEvents(w io.Writer, o Options) (*Events, error) {
	e := &Events{w: w, o: o}
	if o.Format.Kind != Table && o.Format.Kind != Wide {
		return e, nil
	}
	if err := EventColumns.Check(o); err != nil {
		return nil, err
	}
	for i, c := range eventColumns {
		if len(o.Columns) == 0 && (!c.wide || o.Format.Kind == Wide) {
			e.shown = append(e.shown, eventColumns[i])
		}
	}
	for _, name := range o.Columns {
		e.shown = append(e.shown, eventColumns[slices.Index(EventColumns, key(strings.TrimSpace(name)))])
	}
	var header []string
	for _, c := range e.shown {
		header, e.widths = append(header, c.name), append(e.widths, max(c.width, len(c.name)))
	}
	if o.NoHeaders {
		return e, nil
	}
	return e, e.line(header)
}

// Write writes one event.
func (e *Events) Write(event *runtimeapi.ContainerEventResponse) error {
	if e.shown != nil {
		cells := make([]string, len(e.shown))
		for i, c := range e.shown {
			cells[i] = Sanitize(c.value(event, e.o))
		}
		return e.line(cells)
	}
	if e.o.Format.Kind == YAML { // else the documents could not be told apart
		if _, err := io.WriteString(e.w, "---\n"); err != nil {
			return err
		}
	}
	v := messageView(event)
	v.names = func() []string { return []string{event.GetContainerId()} }
	return render(e.w, v, e.o)
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

// eventWord is CREATED out of CONTAINER_CREATED_EVENT, with its first part.
func eventWord(e *runtimeapi.ContainerEventResponse) string {
	const suffix = len("_EVENT")
	s := e.GetContainerEventType().String()
	if len(s) > suffix {
		return s[:len(s)-suffix]
	}
	return s
}

// Metrics writes what ListPodSandboxMetrics answered, under crictl's root.
func Metrics(w io.Writer, r *runtimeapi.ListPodSandboxMetricsResponse, o Options) error {
	v := messageView(r)
	v.names = func() []string { return each(r.GetPodMetrics(), (*runtimeapi.PodSandboxMetrics).GetPodSandboxId) }
	return render(w, v, o)
}

// MetricDescriptors writes what ListMetricDescriptors answered.
func MetricDescriptors(w io.Writer, r *runtimeapi.ListMetricDescriptorsResponse, o Options) error {
	v := messageView(r)
	v.names = func() []string { return each(r.GetDescriptors(), (*runtimeapi.MetricDescriptor).GetName) }
	return render(w, v, o)
}
