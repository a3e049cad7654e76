package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// States of containers and pods that callers ask for. The others are the reasons of kubelets and runtimes.
const (
	Running           = "Running"
	Completed         = "Completed"
	Paused            = "Paused"
	Created           = "Created"
	Unknown           = "Unknown"
	Stopped           = "Stopped"
	NoContainers      = "NoContainers"
	SandboxNotReady   = "SandboxNotReady"
	ContainerCreating = "ContainerCreating"
	PodInitializing   = "PodInitializing"
)

// Container is what the state of a pod depends on of one container, in its newest attempt.
type Container struct {
	Init, Sidecar, Ephemeral bool
	Missing                  bool      // the runtime does not have it
	Waits                    string    // why it is not started, in a kubelet's word; "" for a container that is not to start
	Next                     time.Time // of the next start, where that is known
	State                    runtimeapi.ContainerState
	Paused, Ready            bool
	ExitCode                 int32
	Reason                   string // of its end
	Restarts                 int
}

// Word returns the state of a container in one word: kubectl's, or the runtime's.
func (c Container) Word() string {
	switch {
	case c.Waits != "":
		return c.Waits
	case c.Missing:
		return ContainerCreating
	case c.State == runtimeapi.ContainerState_CONTAINER_CREATED:
		return Created
	case c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && c.Paused:
		return Paused
	case c.State == runtimeapi.ContainerState_CONTAINER_RUNNING:
		return Running
	case c.State != runtimeapi.ContainerState_CONTAINER_EXITED:
		return Unknown
	case c.ExitCode == 0 && c.Reason != "OOMKilled":
		return Completed
	}
	return cmp.Or(c.Reason, fmt.Sprintf("ExitCode:%d", c.ExitCode))
}

// Pod is what the state of a pod depends on.
type Pod struct {
	NoSandbox  bool // the runtime has none
	Ready      bool // the newest one is ready
	Managed    bool // sync or apply works on it: it gets what is missing
	Reason     string
	Containers []Container // in the order of the manifest, where that is known
}

// PodState is how a pod is.
type PodState struct {
	Word              string
	Next              time.Time // of the start that the word is about, where that is known
	Ready, Containers int       // those that count for READY: init containers that are not sidecars do not
	Restarts          int
}

// State returns the state of a pod, in kubectl's words: that of the container which keeps it from running, else what all of
// them are. A stopped pod is one that was ended before its containers were done.
func (p Pod) State() (s PodState) {
	ended := !p.NoSandbox && !p.Ready
	mainMade := slices.ContainsFunc(p.Containers, func(c Container) bool { return !c.Init && !c.Ephemeral && !c.Missing })
	var blocked Container
	word, runs, stopped, inits, done := "", false, false, 0, 0
	for _, c := range p.Containers {
		s.Restarts += c.Restarts
		plainInit := c.Init && !c.Sidecar
		if c.Ephemeral || c.Missing && (ended && !p.Managed || plainInit && mainMade) {
			continue
		}
		own := c.Word()
		if plainInit {
			inits++
		} else if s.Containers++; c.Ready {
			s.Ready++
		}
		switch {
		case own == Completed && plainInit:
			done++
			continue
		case own == Completed, plainInit && (own == Running || own == Created):
			continue
		case own == Running:
			runs = true
			continue
		case ended && (own == Created || c.State == runtimeapi.ContainerState_CONTAINER_EXITED && c.Waits == "" && endedWithPod(c)):
			stopped = true
			continue
		case plainInit:
			own = "Init:" + own
		}
		if word == "" || IsCreating(word) && !IsCreating(own) {
			word, blocked = own, c
		}
	}
	switch {
	case p.Reason != "":
		s.Word = p.Reason
	case runs && ended:
		s.Word = SandboxNotReady
	case word != "" && !IsCreating(word):
		s.Word, s.Next = word, blocked.Next
	case stopped, ended && s.Containers == 0:
		s.Word = Stopped
	case inits > done && !runs:
		s.Word = fmt.Sprintf("Init:%d/%d", done, inits)
	case word != "":
		s.Word = word
	case runs:
		s.Word = Running
	case s.Containers == 0:
		s.Word = NoContainers
	default:
		s.Word = Completed
	}
	return s
}

// endedWithPod reports whether a container ended by a signal that who stops its pod sends.
func endedWithPod(c Container) bool {
	return (c.ExitCode == 137 || c.ExitCode == 143) && (c.Reason == "" || c.Reason == "Error")
}

// IsCreating reports whether a state is that of a container, or a pod, that is being made.
func IsCreating(word string) bool {
	return strings.HasSuffix(word, ContainerCreating) || strings.HasSuffix(word, PodInitializing) || word == Created || strings.HasPrefix(word, "Init:") && strings.Contains(word, "/")
}
