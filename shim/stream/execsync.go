package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/shim/state"
)

const (
	// maxSyncOutput is what ExecSync keeps of each stream; the rest is read and dropped.
	maxSyncOutput = 16 << 20
	// maxSyncMessage leaves room for the rest of the answer in a message that
	// clients accept, which is 16 MiB for a kubelet.
	maxSyncMessage = 16<<20 - 4<<10
)

// ExecSync implements the CRI call. A command that cannot be started ends with
// 126 or 127 like in a shell, with the reason on stderr.
func (s *Server) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	return s.RunSync(ctx, ExecRequest{ContainerID: r.GetContainerId(), Cmd: r.GetCmd()}, time.Duration(r.GetTimeout())*time.Second)
}

// RunSync runs a command and collects its output. When ctx or the timeout ends
// first (0: there is none), the command is killed with everything it started.
func (s *Server) RunSync(ctx context.Context, r ExecRequest, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	if len(r.Cmd) == 0 {
		return nil, fmt.Errorf("the request has no command: %w", errdefs.ErrInvalidArgument)
	}
	if timeout < 0 {
		return nil, fmt.Errorf("timeout %v is negative: %w", timeout, errdefs.ErrInvalidArgument)
	}
	if !s.begin() {
		return nil, fmt.Errorf("the streaming server is closing: %w", errdefs.ErrUnavailable)
	}
	defer s.work.Done()
	c, err := s.running(ctx, r.ContainerID, state.TypeContainer)
	if err != nil {
		return nil, err
	}
	r.ContainerID, r.firstPID = c.ID, sharedFirst(c) // the request may have shortened the id
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errClosing) })()
	if timeout > 0 {
		timer := time.AfterFunc(timeout, func() {
			cancel(fmt.Errorf("command %q timed out after %v: %w", strings.Join(r.Cmd, " "), timeout, context.DeadlineExceeded))
		})
		defer timer.Stop()
	}
	stdout, stderr := &capped{max: maxSyncOutput}, &capped{max: maxSyncOutput}
	code, err := s.run(ctx, &r, ends{stdout: stdout, stderr: stderr})
	if err != nil {
		return nil, fmt.Errorf("exec in container %q: %w", r.ContainerID, err)
	}
	out, errOut := fit(stdout.buf.Bytes(), stderr.buf.Bytes(), maxSyncMessage)
	tellCut(ctx, int64(len(out)) < stdout.total, int64(len(errOut)) < stderr.total)
	return &runtimeapi.ExecSyncResponse{Stdout: out, Stderr: errOut, ExitCode: int32(code)}, nil
}

var errClosing = errors.Join(errors.New("the streaming server is closing"), errdefs.ErrUnavailable)

// tellCut names the streams of which a part is missing. CRI's answer has no
// field for it, and a client that does not know the trailer is none the worse.
func tellCut(ctx context.Context, stdout, stderr bool) {
	var names []string
	if stdout {
		names = append(names, streamStdout)
	}
	if stderr {
		names = append(names, streamStderr)
	}
	if len(names) > 0 {
		_ = grpc.SetTrailer(ctx, metadata.MD{api.TrailerCut: names}) // fails only where no RPC asks
	}
}

// fit cuts two outputs to a common size, the longer one first.
func fit(a, b []byte, max int) (_, _ []byte) {
	if len(a)+len(b) <= max {
		return a, b
	}
	half := max / 2
	switch {
	case len(b) < half:
		return a[:max-len(b)], b
	case len(a) < half:
		return a, b[:max-len(a)]
	}
	return a[:half], b[:half]
}

// capped keeps the beginning of what is written to it.
type capped struct {
	max   int
	total int64 // all that was written
	buf   bytes.Buffer
}

func (c *capped) Write(b []byte) (int, error) {
	c.total += int64(len(b))
	keep := min(len(b), c.max-c.buf.Len())
	c.buf.Write(b[:keep])
	return len(b), nil
}
