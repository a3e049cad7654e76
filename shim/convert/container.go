// Package convert translates values between the Docker Engine API and CRI: states, times, mounts, security options,
// resources, images, users, signals.
//
// All functions are pure: they do not call the engine, read files or use a clock. Invalid input is an error.
package convert

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	reasonCompleted = "Completed"
	reasonError     = "Error"
	reasonOOMKilled = "OOMKilled"
	reasonCannotRun = "ContainerCannotRun"
)

// ContainerState converts the state in a list. Paused and restarting containers count as running.
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

// EngineStates returns the engine's states for its status filter. The engine rejects unknown words.
func EngineStates(state runtimeapi.ContainerState) []string {
	switch state {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		// After a failed start the engine's state remains "created", but CRI's is EXITED. The caller inspects created
		// containers to tell both cases apart.
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

type RunState struct {
	State               runtimeapi.ContainerState
	CreatedAt           int64
	StartedAt           int64
	FinishedAt          int64
	ExitCode            int32
	Reason, Description string
}

// Run converts an inspected container's state. After a failed start the engine's state is "created" with an exit code;
// in CRI the container has exited at once.
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
		r.State, r.Reason = runtimeapi.ContainerState_CONTAINER_EXITED, reasonError
		r.FinishedAt, r.ExitCode = finished, int32(s.ExitCode)
		switch {
		case s.OOMKilled:
			r.Reason = reasonOOMKilled
		case s.ExitCode == 0:
			r.Reason = reasonCompleted
		}
	case s.ExitCode != 0:
		r.State, r.Reason = runtimeapi.ContainerState_CONTAINER_EXITED, reasonCannotRun
		r.StartedAt, r.FinishedAt, r.ExitCode = r.CreatedAt, r.CreatedAt, int32(s.ExitCode)
	default:
		r.State, r.StartedAt = ContainerState(s.Status), 0
		if s.Status == "" {
			r.State = runtimeapi.ContainerState_CONTAINER_CREATED
		}
	}
	r.Description = s.Error
	return r, nil
}

// UnixNano parses a time of the engine. The year 1 and "" mean that the event has not happened, which is 0 in CRI.
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

// Env converts environment variables. A later entry overrides an earlier one. Errors contain no values, which may be
// secret.
func Env(vars []*runtimeapi.KeyValue) ([]string, error) {
	env := make([]string, 0, len(vars))
	for _, v := range vars {
		name, value, wrong := v.GetKey(), string(v.GetValue()), ""
		switch {
		case name == "":
			wrong = "has no name"
		case strings.Contains(name, "="):
			wrong = "has an equals sign in its name"
		case strings.ContainsRune(name, 0):
			wrong = "has a NUL byte in its name"
		case strings.ContainsRune(value, 0):
			wrong = "has a NUL byte in its value"
		}
		if wrong != "" {
			return nil, fmt.Errorf("environment variable %q %s: %w", name, wrong, errdefs.ErrInvalidArgument)
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}

// EngineSignal returns "" for the runtime's default, so that the image's signal applies.
func EngineSignal(s runtimeapi.Signal) (string, error) {
	if s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return "", nil
	}
	name, known := runtimeapi.Signal_name[int32(s)]
	if !known {
		return "", fmt.Errorf("stop signal %d: %w", s, errdefs.ErrInvalidArgument)
	}
	return strings.NewReplacer("SIGNAL_", "", "MINPLUS", "MIN+", "MAXMINUS", "MAX-").Replace(name), nil
}

// Signal parses a signal from an image or a user: SIGTERM, term, 15, SIGRTMIN+3, RTMAX-1. "" is SIGTERM, the engine's
// default.
func Signal(text string) runtimeapi.Signal {
	if text == "" {
		return runtimeapi.Signal_SIGNAL_SIGTERM
	}
	if n, err := strconv.Atoi(text); err == nil {
		return signalByNumber(n)
	}
	name := "SIGNAL_SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	name = strings.NewReplacer("MIN+", "MINPLUS", "MAX-", "MAXMINUS").Replace(name)
	return runtimeapi.Signal(runtimeapi.Signal_value[name])
}

// signalByNumber uses Linux' numbers on amd64 and arm64.
func signalByNumber(n int) runtimeapi.Signal {
	const realTimeMin, realTimeMax = 34, 64
	switch name := unix.SignalName(syscall.Signal(n)); {
	case name != "":
		return Signal(name)
	case n == realTimeMin:
		return runtimeapi.Signal_SIGNAL_SIGRTMIN
	case n == realTimeMax:
		return runtimeapi.Signal_SIGNAL_SIGRTMAX
	case n > realTimeMin && n <= realTimeMin+15:
		return Signal("RTMIN+" + strconv.Itoa(n-realTimeMin))
	case n > realTimeMin && n < realTimeMax:
		return Signal("RTMAX-" + strconv.Itoa(realTimeMax-n))
	}
	return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
}
