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

type Pod struct {
	NoSandbox  bool // the runtime has none
	Ready      bool // the newest one is ready
	Managed    bool // sync or apply works on it: it gets what is missing
	Reason     string
	Containers []Container // in the order of the manifest, where that is known
}

type PodState struct {
	Word              string
	Next              time.Time // of the start that the word is about, where that is known
	Ready, Containers int       // those that count for READY: init containers that are not sidecars do not
	Restarts          int
}

// State returns the state of a pod, in kubectl's words: that of the container which keeps it from running, else what all of
// them are. A stopped pod is one that was ended before its containers were done.
func (p Pod) State() PodState {
	ended := !p.NoSandbox && !p.Ready
	all := p.sum(ended)
	s := PodState{Ready: all.ready, Containers: all.counted, Restarts: all.restarts}
	switch {
	case p.Reason != "":
		s.Word = p.Reason
	case all.runs && ended:
		s.Word = SandboxNotReady
	case all.word != "" && !IsCreating(all.word):
		s.Word, s.Next = all.word, all.next
	case all.stopped, ended && all.counted == 0:
		s.Word = Stopped
	case all.inits > all.done && !all.runs:
		s.Word = fmt.Sprintf("Init:%d/%d", all.done, all.inits)
	case all.word != "":
		s.Word = all.word
	case all.runs:
		s.Word = Running
	case all.counted == 0:
		s.Word = NoContainers
	default:
		s.Word = Completed
	}
	return s
}

type sum struct {
	word                     string // of the first that neither runs nor has done its work; a failure comes before a wait
	next                     time.Time
	runs, stopped            bool // one that is no init container does, or was ended with the pod
	inits, done              int  // init containers that are not sidecars
	ready, counted, restarts int
}

// counted returns the containers that the state depends on: no ephemeral ones, and none that is missing and not to be made any more.
func (p Pod) counted(ended bool) []Container {
	mainMade := slices.ContainsFunc(p.Containers, func(c Container) bool { return !c.Init && !c.Ephemeral && !c.Missing })
	return slices.DeleteFunc(slices.Clone(p.Containers), func(c Container) bool {
		return c.Ephemeral || c.Missing && (ended && !p.Managed || c.Init && !c.Sidecar && mainMade)
	})
}

func (p Pod) sum(ended bool) (all sum) {
	for _, c := range p.Containers {
		all.restarts += c.Restarts
	}
	for _, c := range p.counted(ended) {
		plainInit := c.Init && !c.Sidecar
		if plainInit {
			all.inits++
		} else if all.counted++; c.Ready {
			all.ready++
		}
		word, with := c.Word(), ended && c.endedWithPod()
		switch {
		case word == Completed && plainInit:
			all.done++
		case word == Completed, plainInit && (word == Running || word == Created):
		case word == Running:
			all.runs = true
		case with:
			all.stopped = true
		case plainInit:
			all.block("Init:"+word, c.Next)
		default:
			all.block(word, c.Next)
		}
	}
	return all
}

func (s *sum) block(word string, next time.Time) {
	if s.word == "" || IsCreating(s.word) && !IsCreating(word) {
		s.word, s.next = word, next
	}
}

// endedWithPod reports whether a container of a pod that has ended was not started, or ended by a signal that who stops a
// pod sends.
func (c Container) endedWithPod() bool {
	if c.Waits != "" || c.Missing {
		return false
	}
	return c.State == runtimeapi.ContainerState_CONTAINER_CREATED ||
		c.State == runtimeapi.ContainerState_CONTAINER_EXITED && (c.ExitCode == 137 || c.ExitCode == 143) && (c.Reason == "" || c.Reason == "Error")
}

// IsCreating reports whether a state is that of a container, or a pod, that is being made.
func IsCreating(word string) bool {
	return strings.HasSuffix(word, ContainerCreating) || strings.HasSuffix(word, PodInitializing) || word == Created || strings.HasPrefix(word, "Init:") && strings.Contains(word, "/")
}
