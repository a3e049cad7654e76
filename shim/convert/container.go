package convert

import (
	"fmt"
	"time"

	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Reasons a container is in its state, as kubelets and people know them.
const (
	ReasonCompleted = "Completed"
	ReasonError     = "Error"
	ReasonOOMKilled = "OOMKilled"
	ReasonCannotRun = "ContainerCannotRun"
)

// ContainerState is the CRI state for the state word of a list entry. A paused
// or restarting container has processes, so it counts as running.
func ContainerState(state container.ContainerState) runtimeapi.ContainerState {
	switch state {
	case container.StateCreated:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	case container.StateRunning, container.StatePaused, container.StateRestarting:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	case container.StateExited:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	default:
		return runtimeapi.ContainerState_CONTAINER_UNKNOWN
	}
}

// EngineStates are the words of the engine's status filter that together make
// up a CRI state. The engine refuses a word it does not know, so there is none
// for a value outside the enum.
func EngineStates(state runtimeapi.ContainerState) []string {
	switch state {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		// A container that could not be started stays "created" for the
		// engine, and is EXITED for the CRI: the caller looks again.
		return []string{"created"}
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return []string{"running", "paused", "restarting"}
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return []string{"exited", "created"}
	case runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		return []string{"removing", "dead"}
	default:
		return nil
	}
}

// RunState is what an inspected container's state says in CRI terms.
type RunState struct {
	State               runtimeapi.ContainerState
	CreatedAt           int64
	StartedAt           int64
	FinishedAt          int64
	ExitCode            int32
	Reason, Description string
}

// Run reads an inspected container's state. A start that failed leaves the
// engine's container "created" with an exit code and without a finish time:
// for the CRI that is a container which ended at once and cannot run.
func Run(created string, s *container.State) (RunState, error) {
	var r RunState
	var err error
	if r.CreatedAt, err = UnixNano(created); err != nil {
		return r, err
	}
	if s == nil {
		r.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		return r, fmt.Errorf("engine gave no state")
	}
	if r.StartedAt, err = UnixNano(s.StartedAt); err != nil {
		return r, err
	}
	finished, err := UnixNano(s.FinishedAt)
	if err != nil {
		return r, err
	}
	switch {
	case s.Running || s.Paused || s.Restarting:
		r.State = runtimeapi.ContainerState_CONTAINER_RUNNING
	case finished != 0:
		r.ended(s, finished)
	case s.ExitCode != 0:
		r.cannotRun(s)
	default:
		r.State, r.StartedAt = ContainerState(s.Status), 0
		if s.Status == "" {
			r.State = runtimeapi.ContainerState_CONTAINER_CREATED
		}
	}
	r.Description = s.Error
	return r, nil
}

func (r *RunState) ended(s *container.State, finished int64) {
	r.State = runtimeapi.ContainerState_CONTAINER_EXITED
	r.FinishedAt, r.ExitCode = finished, int32(s.ExitCode)
	switch {
	case s.OOMKilled:
		r.Reason = ReasonOOMKilled
	case s.ExitCode == 0:
		r.Reason = ReasonCompleted
	default:
		r.Reason = ReasonError
	}
}

func (r *RunState) cannotRun(s *container.State) {
	r.State, r.Reason = runtimeapi.ContainerState_CONTAINER_EXITED, ReasonCannotRun
	r.ExitCode = int32(s.ExitCode)
	r.StartedAt, r.FinishedAt = r.CreatedAt, r.CreatedAt
}

// UnixNano turns the engine's text form of a time into nanoseconds since 1970.
// The engine writes the year 1 for "has not happened", and leaves the field
// empty in some answers; the CRI writes 0 for both.
func UnixNano(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, fmt.Errorf("engine time %q: %w", text, err)
	}
	if t.Year() < 1970 {
		return 0, nil
	}
	return t.UnixNano(), nil
}
