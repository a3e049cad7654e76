package kuberuntime

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Event is something that happened to a pod, with the kubelet's reasons.
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

// Reasons of events.
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
	m.emit(p, Event{Container: container, Reason: reason, Message: fmt.Sprintf(format, args...), Warning: true, Waiting: why.Error()})
}

func (m *Manager) emit(p *v1.Pod, e Event) {
	if m.o.Events == nil {
		return
	}
	e.Time, e.Namespace, e.Pod, e.UID = m.o.Now(), p.Namespace, p.Name, string(p.UID)
	e.Message = e.Message[:min(len(e.Message), maxEventMessage)]
	m.o.Events(e)
}
