package stream

import (
	"errors"
	"fmt"
	"syscall"
)

var (
	// ErrDetached says that the user pressed the detach keys.
	ErrDetached = errors.New("detached")
	// ErrNoStatus says that the connection ended and nobody knows how the
	// command did.
	ErrNoStatus = errors.New("the connection ended before the exit status arrived")
	// ErrPodEnded says that forwarding ended because the pod did.
	ErrPodEnded = errors.New("the pod has ended")
)

// ExitError is the status of a command that ran and did not succeed.
type ExitError struct {
	Code int // 1 to 255
}

func (e *ExitError) Error() string { return fmt.Sprintf("command ended with status %d", e.Code) }

// SignalError says that a signal to this process ended the session.
type SignalError struct {
	Signal syscall.Signal
}

func (e *SignalError) Error() string { return fmt.Sprintf("ended by signal: %s", e.Signal) }

// ExitCode is what a shell would report for the signal.
func (e *SignalError) ExitCode() int { return 128 + int(e.Signal) }

// RemoteError is what the runtime said about a command or a session that it
// could not run. Its text is the runtime's own.
type RemoteError struct {
	Message string
}

func (e *RemoteError) Error() string { return e.Message }

// UpgradeError is the answer of a server that did not switch to the streaming
// protocol.
type UpgradeError struct {
	Code    int // HTTP status
	Message string
}

func (e *UpgradeError) Error() string {
	if e.Code == 404 {
		return "the streaming URL is unknown or already used"
	}
	return fmt.Sprintf("streaming server answered %d: %s", e.Code, e.Message)
}
