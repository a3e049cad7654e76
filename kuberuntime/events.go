package kuberuntime

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crishim/crishim/kuberuntime/pod"
)

type Event struct {
	Time      time.Time `json:"time"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	UID       string    `json:"uid"`
	Container string    `json:"container,omitempty"`
	Warning   bool      `json:"warning,omitempty"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	// Waiting is why the container does not start, as a kubelet names it: ErrImagePull,
	// CrashLoopBackOff, ...
	Waiting string `json:"waiting,omitempty"`
}

const (
	EventPulling         = "Pulling"
	EventPulled          = "Pulled"
	EventCreated         = "Created"
	EventStarted         = "Started"
	EventKilling         = "Killing"
	EventFailed          = "Failed"
	EventBackOff         = "BackOff"
	EventSandboxCreated  = "SandboxCreated"
	EventSandboxChanged  = "SandboxChanged"
	EventSandboxFailed   = "FailedCreatePodSandBox"
	EventPostStart       = "PostStartHook"
	EventPostStartFailed = "FailedPostStartHook"
	EventPreStop         = "PreStopHook"
	EventPreStopFailed   = "FailedPreStopHook"
	EventUnhealthy       = "Unhealthy"
	EventReady           = "Ready"
	EventNotReady        = "NotReady"
	EventDeadline        = "DeadlineExceeded"
	EventAdopted         = "Adopted"
	EventVolumes         = "FailedMount"
)

// maxEventMessage is more than any message of ours. What a container's server or command
// answers is in some of them.
const maxEventMessage = 8 << 10

// event reports a normal step of a pod, warn something that went wrong.
func (m *Manager) event(p *v1.Pod, container, reason, format string, args ...any) {
	m.emit(p, Event{Container: container, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (m *Manager) warn(p *v1.Pod, container, reason, format string, args ...any) {
	m.emit(p, Event{Container: container, Reason: reason, Message: fmt.Sprintf(format, args...), Warning: true})
}

// waits reports why a container does not start.
func (m *Manager) waits(p *v1.Pod, container, reason string, why error, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	m.keepWait(string(p.UID), container, why.Error(), message)
	m.emit(p, Event{Container: container, Reason: reason, Message: message, Warning: true, Waiting: why.Error()})
}

func (m *Manager) emit(p *v1.Pod, e Event) {
	if m.o.Events == nil {
		return
	}
	e.Time, e.Namespace, e.Pod, e.UID = m.o.Now(), p.Namespace, p.Name, string(p.UID)
	e.Message = e.Message[:min(len(e.Message), maxEventMessage)]
	m.o.Events(e)
}

// podOf returns as much of a pod as events need.
func podOf(status *pod.Status) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: status.Name, Namespace: status.Namespace, UID: types.UID(status.UID)}}
}

// maxEventLog is where a pod's event file starts over with its newer half.
const maxEventLog = 256 << 10

// AppendEvent keeps an event in the pod's folder, where describe finds it; not of a pod without a folder.
func AppendEvent(d pod.Dirs, e Event) error {
	if !pod.IsUID(e.UID) {
		return nil
	}
	path := eventPath(d, e.UID)
	if info, err := os.Stat(path); err == nil && info.Size() >= maxEventLog {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		half := text[len(text)/2:]
		if err := os.WriteFile(path, half[bytes.IndexByte(half, '\n')+1:], 0o600); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = f.Write(append(line, '\n')) // one write: lines of several processes do not mix
	}
	return errors.Join(err, f.Close())
}

func eventPath(d pod.Dirs, uid string) string { return filepath.Join(d.Pod(uid), "events.jsonl") }

// ReadEvents returns a pod's events, the oldest first.
func ReadEvents(d pod.Dirs, uid string) ([]Event, error) {
	if !pod.IsUID(uid) {
		return nil, nil
	}
	f, err := os.Open(eventPath(d, uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer f.Close()
	var out []Event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			out = append(out, e)
		}
	}
	return out, lines.Err()
}
