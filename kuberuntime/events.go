package kuberuntime

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type Event struct {
	Time      time.Time `json:"time"`
	Until     time.Time `json:"until,omitzero"` // end of the grace period of a user's stop
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	UID       string    `json:"uid"`
	Container string    `json:"container,omitempty"`
	ID        string    `json:"id,omitempty"` // of a container that has exited, or that a user has stopped
	Warning   bool      `json:"warning,omitempty"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	// Waiting is the kubelet's reason why the container does not start: ErrImagePull, CrashLoopBackOff, ...
	Waiting string `json:"waiting,omitempty"`
	// Cause is the reason why a container is killed; "" if its whole pod is stopped.
	Cause plan.Reason `json:"cause,omitempty"`
}

const (
	EventPulling         = "Pulling"
	eventPulled          = "Pulled"
	EventCreated         = "Created"
	EventStarted         = "Started"
	eventExited          = "Exited"
	EventKilling         = "Killing"
	eventFailed          = "Failed"
	eventBackOff         = "BackOff"
	eventSandboxCreated  = "SandboxCreated"
	EventSandboxChanged  = "SandboxChanged"
	EventSandboxFailed   = "FailedCreatePodSandBox"
	eventPostStart       = "PostStartHook"
	EventPostStartFailed = "FailedPostStartHook"
	eventPreStop         = "PreStopHook"
	eventPreStopFailed   = "FailedPreStopHook"
	EventUnhealthy       = "Unhealthy"
	eventReady           = "Ready"
	eventNotReady        = "NotReady"
	EventDeadline        = "DeadlineExceeded"
	eventAdopted         = "Adopted"
	EventVolumes         = "FailedMount"
	eventBandwidth       = "BandwidthNotLimited"
)

// LastFailure returns the event with the reason why a container does not start, or nil after later progress. An empty
// name selects all events of the pod, to explain why the pod has no containers.
func LastFailure(events []Event, container string) *Event {
	for i, e := range slices.Backward(events) {
		switch {
		case e.Container != container && container != "":
			continue
		case e.Reason == eventFailed && e.Container != "", e.Reason == EventPulling, e.Reason == EventSandboxFailed, e.Reason == EventVolumes:
			return &events[i]
		case e.Reason == eventSandboxCreated, e.Reason == EventStarted:
			return nil
		}
	}
	return nil
}

func (e *Event) Why() string {
	text := map[string]string{
		eventFailed: "cannot start", EventPulling: "waits for its image",
		EventSandboxFailed: "the sandbox cannot be created", EventVolumes: "the volumes cannot be made",
	}[e.Reason] + ": " + OneLine(e.Message)
	if e.Container != "" {
		text = e.Container + " " + text
	}
	return text
}

// WhyNoContainers returns why a recorded pod has no container. ref is a name or namespace/name; for an ambiguous ref the
// results are empty.
func WhyNoContainers(d pod.Dirs, ref string) (name, why string) {
	uids, _ := listDir(d.Pods())
	for _, uid := range uids {
		record, err := readRecord(d, uid)
		if err != nil || record.Pod.Name != ref && FullName(record.Pod) != ref {
			continue
		}
		if name != "" {
			return "", ""
		}
		name = FullName(record.Pod)
		events, _ := podEvents(d, uid)
		if e := LastFailure(events, ""); e != nil {
			why = e.Why()
		}
	}
	return name, why
}

// maxEventMessage limits messages, because some contain the response of a container's server or the output of a
// command.
const maxEventMessage = 8 << 10

func (m *Manager) event(p *v1.Pod, container, reason, format string, args ...any) {
	m.emit(p, Event{Container: container, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (m *Manager) warn(p *v1.Pod, container, reason, format string, args ...any) {
	m.emit(p, Event{Container: container, Reason: reason, Message: fmt.Sprintf(format, args...), Warning: true})
}

func (m *Manager) reportWaiting(p *v1.Pod, container, reason string, why error, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	m.setWaiting(string(p.UID), container, why.Error(), message)
	m.emit(p, Event{Container: container, Reason: reason, Message: message, Warning: true, Waiting: why.Error()})
}

func (m *Manager) emit(p *v1.Pod, e Event) {
	if m.o.Events == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = m.o.Now()
	}
	e.Namespace, e.Pod, e.UID = p.Namespace, p.Name, string(p.UID)
	e.Message = e.Message[:min(len(e.Message), maxEventMessage)]
	m.o.Events(e)
}

// reportEnds emits an event for each container whose end no process has reported yet.
func (m *Manager) reportEnds(p *v1.Pod, status *pod.Status) {
	for _, c := range m.states.newEnds(m.o.Dirs, string(p.UID), status) {
		text := fmt.Sprintf("exited with status %d", c.ExitCode)
		if c.Reason != "" {
			text += " (" + c.Reason + ")"
		}
		if message := OneLine(c.Message); message != "" {
			text += ": " + message
		}
		m.emit(p, Event{Time: c.FinishedAt, Container: c.Name, ID: c.ID, Reason: eventExited, Message: text, Warning: !c.Succeeded()})
	}
}

// newEnds returns and remembers the ended containers without an event, oldest first. A container whose start failed has
// an event of its own.
func (w *stateWriter) newEnds(d pod.Dirs, uid string, status *pod.Status) (ends []*pod.ContainerStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.of(uid)
	if one.ended == nil {
		one.ended = map[string]bool{}
		events, _ := podEvents(d, uid) // without the events, an end is reported twice
		for _, e := range events {
			one.ended[e.ID] = e.Reason == eventExited
		}
	}
	reported := map[string]bool{}
	for _, c := range slices.Backward(status.Containers) {
		if !c.Exited() || c.StartedAt.IsZero() || c.NeverStarted() {
			continue
		}
		if !one.ended[c.ID] {
			ends = append(ends, c)
		}
		reported[c.ID] = true
	}
	one.ended = reported
	return ends
}

func podOf(status *pod.Status) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: status.Name, Namespace: status.Namespace, UID: types.UID(status.UID)}}
}

// halfEventLog is the size at which the current file of an event log is full and replaces the older file. An event log
// has only these two files.
const halfEventLog = 128 << 10

// AppendEvent appends an event to the log in the pod's directory, if the directory exists.
func AppendEvent(d pod.Dirs, e Event) error {
	if !pod.IsUID(e.UID) {
		return nil
	}
	err := appendEvent(eventFiles(d.Pod(e.UID), "events"), e)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// AppendStop records that a user has stopped the container e.ID. Pods of runp and of other tools have no directory, so
// one log holds the stops of all pods.
func AppendStop(d pod.Dirs, e Event) error {
	if err := os.MkdirAll(d.Root, 0o750); err != nil {
		return err
	}
	return appendEvent(eventFiles(d.Root, "stops"), e)
}

func appendEvent(files []string, e Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := bounded.OpenFile(files[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	n, err := f.Write(append(line, '\n')) // one write: lines of several processes do not mix
	if end, serr := f.Seek(0, io.SeekCurrent); err == nil {
		// Exactly one line fills the file, so only its writer renames the file, even if several processes write.
		if err = serr; err == nil && end/halfEventLog > (end-int64(n))/halfEventLog {
			err = os.Rename(files[1], files[0])
		}
	}
	return errors.Join(err, f.Close())
}

// eventFiles returns the files of a log of events, the older first.
func eventFiles(dir, name string) []string {
	return []string{filepath.Join(dir, name+".1.jsonl"), filepath.Join(dir, name+".jsonl")}
}

func podEvents(d pod.Dirs, uid string) ([]Event, error) {
	if !pod.IsUID(uid) {
		return nil, nil
	}
	return readEvents(eventFiles(d.Pod(uid), "events"))
}

func readEvents(files []string) (out []Event, err error) {
	for _, path := range files {
		f, err := bounded.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
		lines := bufio.NewScanner(io.LimitReader(f, 2*halfEventLog)) // a file exceeds halfEventLog by less than one line
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e Event
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				out = append(out, e)
			}
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			return out, err
		}
	}
	return out, nil
}

// inCausalOrder gives the end of a container at least the time of its start and of the event that caused the end. The
// sequence of the events stays. The end may have an earlier time, because a start is reported only after StartContainer
// has returned.
func inCausalOrder(events []Event) []Event {
	events = slices.Clone(events)
	before := map[string]time.Time{} // time of the latest event that may cause an end, by container
	for i, e := range events {
		switch {
		case e.Container == "":
		case e.Reason == EventCreated, e.Reason == EventStarted, e.Reason == EventKilling:
			before[e.Container] = e.Time
		case e.Reason == eventExited && e.Time.Before(before[e.Container]):
			events[i].Time = before[e.Container]
		}
	}
	return events
}

type FoldedEvent struct {
	Event
	First time.Time // time of the first event
	Count int
}

// FoldEvents merges events with the same reason, waiting reason and severity, for each container and the pod. The result
// is ordered by the last event of each. Failed probes, exits and failures without a waiting reason are merged only if
// their messages are equal up to the first colon, so that different probes and exit statuses stay separate.
func FoldEvents(events []Event) []FoldedEvent {
	type kind struct {
		container, reason, waiting, text string
		warning                          bool
	}
	events = inCausalOrder(events)
	slices.SortStableFunc(events, func(a, b Event) int { return a.Time.Compare(b.Time) })
	var folded []FoldedEvent // the latest first
	at := map[kind]int{}
	for _, e := range slices.Backward(events) {
		k := kind{container: e.Container, reason: e.Reason, waiting: e.Waiting, warning: e.Warning}
		switch {
		case e.Reason == EventUnhealthy, e.Reason == eventExited, e.Reason == eventFailed && e.Waiting == "":
			k.text, _, _ = strings.Cut(e.Message, ":")
		}
		i, known := at[k]
		if !known {
			i = len(folded)
			at[k], folded = i, append(folded, FoldedEvent{Event: e})
		}
		folded[i].First = e.Time
		folded[i].Count++
	}
	slices.Reverse(folded)
	return folded
}
