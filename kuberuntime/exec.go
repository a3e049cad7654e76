package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExitError is a command that ended with another status than 0.
type ExitError struct {
	Code   int
	Stderr string
}

func (e *ExitError) Error() string { return fmt.Sprintf("command ended with status %d", e.Code) }

// ErrTimeout is a command that took longer than it may.
var ErrTimeout = errors.New("command timed out")

// execGrace is how much later than the timeout the runtime's answer to it may come.
const execGrace = 2 * time.Minute

// RunInContainer runs a command to its end and returns its stdout and then its stderr.
func (m *Manager) RunInContainer(ctx context.Context, id string, cmd []string, timeout time.Duration) ([]byte, error) {
	seconds := int64((timeout + time.Second - 1) / time.Second)
	if timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout+execGrace)
		defer cancel()
		ctx = limited
	}
	resp, err := m.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: seconds})
	if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil { // else the runtime did not answer at all
		return nil, fmt.Errorf("%w after %s", ErrTimeout, timeout)
	}
	if err == nil && resp.GetExitCode() != 0 {
		err = &ExitError{Code: int(resp.GetExitCode()), Stderr: string(resp.GetStderr())}
	}
	return append(resp.GetStdout(), resp.GetStderr()...), err
}

// GetExec returns the URL of an exec session.
func (m *Manager) GetExec(ctx context.Context, id string, cmd []string, stdin, stdout, stderr, tty bool) (string, error) {
	resp, err := m.runtime.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: cmd, Tty: tty, Stdin: stdin, Stdout: stdout, Stderr: stderr})
	return resp.GetUrl(), err
}

// GetAttach returns the URL of an attach session.
func (m *Manager) GetAttach(ctx context.Context, id string, stdin, stdout, stderr, tty bool) (string, error) {
	resp, err := m.runtime.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id, Tty: tty, Stdin: stdin, Stdout: stdout, Stderr: stderr})
	return resp.GetUrl(), err
}

// GetPortForward returns the URL of a port-forward to a pod.
func (m *Manager) GetPortForward(ctx context.Context, sandboxID string, ports []int32) (string, error) {
	resp, err := m.runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandboxID, Port: ports})
	return resp.GetUrl(), err
}
