package kuberuntime

import (
	"fmt"
	"time"

	v1 "github.com/crishim/crishim/kuberuntime/corev1"
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

// event reports a normal step of a pod, warn something that went wrong.
func (m *Manager) event(p *v1.Pod, container, reason, format string, args ...any) {
	m.emit(p, container, false, reason, format, args...)
}

func (m *Manager) warn(p *v1.Pod, container, reason, format string, args ...any) {
	m.emit(p, container, true, reason, format, args...)
}

func (m *Manager) emit(p *v1.Pod, container string, warning bool, reason, format string, args ...any) {
	if m.o.Events == nil {
		return
	}
	m.o.Events(Event{
		Time: m.o.Now(), Namespace: p.Namespace, Pod: p.Name, UID: string(p.UID), Container: container,
		Warning: warning, Reason: reason, Message: fmt.Sprintf(format, args...),
	})
}
