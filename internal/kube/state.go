package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// States of containers and pods that callers compare with. All other states are reasons from kubelets and runtimes.
const (
	Running           = "Running"
	Completed         = "Completed"
	Paused            = "Paused"
	created           = "Created"
	Unknown           = "Unknown"
	Stopped           = "Stopped"
	NoContainers      = "NoContainers"
	sandboxNotReady   = "SandboxNotReady"
	containerCreating = "ContainerCreating"
	PodInitializing   = "PodInitializing"
)

// Container is the state of a container's newest attempt, as far as the state of the pod depends on it.
type Container struct {
	Init, Sidecar, Ephemeral bool
	Missing                  bool      // not in the runtime
	Waits                    string    // the kubelet's reason why it is not started; "" if unknown or not waiting
	Next                     time.Time // time of the next start, if known
	State                    runtimeapi.ContainerState
	Paused, Ready            bool
	ExitCode                 int32
	Reason                   string // reason for its end
	Restarts                 int
}

// Word returns the state of a container in one word, as kubectl or the runtime names it.
func (c Container) Word() string {
	switch {
	case c.Waits != "":
		return c.Waits
	case c.Missing:
		return containerCreating
	case c.State == runtimeapi.ContainerState_CONTAINER_CREATED:
		return created
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
	NoSandbox  bool // the runtime has no sandbox
	Ready      bool // the newest sandbox is ready
	Managed    bool // sync or apply manages the pod and creates missing containers
	Reason     string
	Containers []Container // in manifest order, if known
}

type PodState struct {
	Word              string
	Next              time.Time // next start of the container that Word describes, if known
	Ready, Containers int       // containers for READY: all except init containers that are not sidecars
	Restarts          int
}

// State returns the state of a pod in kubectl's words. The pod's Reason takes precedence. If a container prevents the
// pod from running, the pod has the state of that container. Otherwise the state summarizes all containers. A pod is
// Stopped if it was stopped before all its containers had completed, but a container that failed before the stop takes
// precedence.
func (p Pod) State() PodState {
	ended := !p.NoSandbox && !p.Ready
	all := p.sum(ended)
	s := PodState{Ready: all.ready, Containers: all.counted, Restarts: all.restarts}
	switch {
	case p.Reason != "":
		s.Word = p.Reason
	case all.runs && ended:
		s.Word = sandboxNotReady
	case all.word != "" && !IsCreating(all.word):
		s.Word, s.Next = all.word, all.next
	case all.stopped, ended && all.counted == 0:
		s.Word = Stopped
	case all.inits > all.done && (all.initializing || !all.initialized):
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
	word                     string // first container that neither runs nor has completed; a failure takes precedence over waiting
	next                     time.Time
	runs, stopped            bool // a main container or sidecar runs; a container ended with the pod
	initializing             bool // an init container runs or was created, perhaps again after a restart of the pod
	initialized              bool // a main container was created
	inits, done              int  // init containers, and how many have completed or, for sidecars, run
	ready, counted, restarts int
}

// counted returns the containers that the state depends on. It leaves out ephemeral containers and missing ones that
// will not be created.
func (p Pod) counted(ended bool) []Container {
	mainMade := slices.ContainsFunc(p.Containers, func(c Container) bool { return !c.Init && !c.Ephemeral && !c.Missing })
	return slices.DeleteFunc(slices.Clone(p.Containers), func(c Container) bool {
		return c.Ephemeral || c.Missing && (ended && !p.Managed || c.Init && !c.Sidecar && mainMade)
	})
}

func (p Pod) sum(ended bool) (all sum) {
	for _, c := range p.Containers {
		all.restarts += c.Restarts
		if ended && !p.Managed && c.Missing && !c.Init && !c.Ephemeral {
			all.stopped = true // before the container was created
		}
	}
	for _, c := range p.counted(ended) {
		all.count(c)
		all.add(c, ended && c.endedWithPod())
	}
	return all
}

func (s *sum) count(c Container) {
	if c.Init {
		s.inits++
	} else if !c.Missing {
		s.initialized = true
	}
	if c.Init && !c.Sidecar {
		return
	}
	if s.counted++; c.Ready {
		s.ready++
	}
}

func (s *sum) add(c Container, endedWithPod bool) {
	word, plainInit := c.Word(), c.Init && !c.Sidecar
	switch {
	case word == Completed && c.Init:
		s.done++
	case word == Completed:
	case plainInit && (word == Running || word == created):
		s.initializing = true
	case word == Running:
		s.runs = true
		if c.Sidecar {
			s.done++
		}
	case endedWithPod:
		s.stopped = true
	case plainInit:
		s.block("Init:"+word, c.Next)
	default:
		s.block(word, c.Next)
	}
}

func (s *sum) block(word string, next time.Time) {
	if s.word == "" || IsCreating(s.word) && !IsCreating(word) {
		s.word, s.next = word, next
	}
}

// endedWithPod reports whether a container of an ended pod was created and never started, or has the exit status of
// SIGTERM or SIGKILL, which are the signals for stopping a pod. A container with another reason for its end, such as
// OOMKilled, did not end with the pod. Neither did a container that waits for its next start.
func (c Container) endedWithPod() bool {
	if c.Waits != "" || c.Missing {
		return false
	}
	return c.State == runtimeapi.ContainerState_CONTAINER_CREATED ||
		c.State == runtimeapi.ContainerState_CONTAINER_EXITED && (c.ExitCode == 137 || c.ExitCode == 143) && (c.Reason == "" || c.Reason == "Error")
}

func IsCreating(word string) bool {
	return strings.HasSuffix(word, containerCreating) || strings.HasSuffix(word, PodInitializing) || word == created || strings.HasPrefix(word, "Init:") && strings.Contains(word, "/")
}
