package stream

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/shim/state"
)

type ExecRequest struct {
	ContainerID                string
	Cmd                        []string
	TTY, Stdin, Stdout, Stderr bool

	Env        []string // NAME=value, added to the container's environment
	WorkingDir string   // "": the container's
	User       string   // name or uid, optionally with :group; "": the container's

	firstPID int // see sharedFirst
}

func (s *Server) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	url, err := s.ExecURL(ctx, ExecRequest{
		ContainerID: r.GetContainerId(),
		Cmd:         r.GetCmd(),
		TTY:         r.GetTty(),
		Stdin:       r.GetStdin(),
		Stdout:      r.GetStdout(),
		Stderr:      r.GetStderr(),
	})
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ExecResponse{Url: url}, nil
}

// ExecURL returns the streaming URL of an exec. The exec is created when a client connects, because the engine would
// keep an unstarted exec until the container ends.
func (s *Server) ExecURL(ctx context.Context, r ExecRequest) (string, error) {
	want := wanted{stdin: r.Stdin, stdout: r.Stdout, stderr: r.Stderr, tty: r.TTY}
	if err := want.check(); err != nil {
		return "", err
	}
	if err := s.resolve(ctx, &r); err != nil {
		return "", err
	}
	return s.url(ctx, "exec", func(w http.ResponseWriter, q *http.Request) {
		detached := new(atomic.Bool)
		s.detachable.Store(q.URL.Path, detached)
		defer s.detachable.Delete(q.URL.Path)
		session{server: s, want: want, run: func(ctx context.Context, e ends) error {
			e.detached = detached
			code, err := s.run(ctx, &r, e)
			if err != nil {
				err = fmt.Errorf("exec in container %q: %w", r.ContainerID, err)
				s.opts.Log.Debug("exec session failed", "error", err)
				return err
			}
			if code != 0 {
				return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: code}
			}
			return nil
		}}.serve(w, q)
	})
}

func (s *Server) resolve(ctx context.Context, r *ExecRequest) error {
	if len(r.Cmd) == 0 {
		return fmt.Errorf("the request has no command: %w", errdefs.ErrInvalidArgument)
	}
	c, err := s.running(ctx, r.ContainerID, state.TypeContainer)
	if err != nil {
		return err
	}
	r.ContainerID, r.firstPID = c.ID, sharedFirst(c) // the request may contain a short id
	return nil
}

// Detach keeps the process of a session running when its client leaves. The URL authorizes the call, because only the
// session's client knows it.
func (s *Server) Detach(streamingURL string) error {
	u, err := url.Parse(streamingURL)
	if err != nil {
		return fmt.Errorf("streaming url: %w", errdefs.ErrInvalidArgument)
	}
	detached, ok := s.detachable.Load(u.Path)
	if !ok {
		return fmt.Errorf("no exec session has this url: %w", errdefs.ErrNotFound)
	}
	detached.(*atomic.Bool).Store(true)
	return nil
}

// ExecSync returns an exit code for a command that cannot be started, with the reason on stderr: 126, 127 or, for some
// reasons, the engine's own code, such as 128.
func (s *Server) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	return s.RunSync(ctx, ExecRequest{ContainerID: r.GetContainerId(), Cmd: r.GetCmd()}, time.Duration(r.GetTimeout())*time.Second)
}

// RunSync runs a command and collects its output. When ctx or the timeout ends (0: none), the command and all its
// descendants are killed. As in containerd, the timeout counts from the start of the process, so that a slow engine
// does not fail a probe.
func (s *Server) RunSync(ctx context.Context, r ExecRequest, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	if timeout < 0 {
		return nil, fmt.Errorf("timeout %v is negative: %w", timeout, errdefs.ErrInvalidArgument)
	}
	unavailable := fmt.Errorf("%w: %w", errStopping, errdefs.ErrUnavailable)
	if !s.begin(&s.work) {
		return nil, unavailable
	}
	defer s.work.Done()
	if err := s.resolve(ctx, &r); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(unavailable) })()
	var stdout, stderr capped
	e := ends{stdout: &stdout, stderr: &stderr}
	if timeout > 0 {
		command := strings.Join(r.Cmd, " ")
		start := time.AfterFunc(startLimit, func() {
			cancel(fmt.Errorf("command %q was not started within %v: %w", command, startLimit, errdefs.ErrUnavailable))
		})
		defer start.Stop()
		e.running = func() {
			start.Stop()
			end := time.AfterFunc(timeout, func() {
				cancel(fmt.Errorf("command %q timed out after %v: %w", command, timeout, context.DeadlineExceeded))
			})
			context.AfterFunc(ctx, func() { end.Stop() })
		}
	}
	code, err := s.run(ctx, &r, e)
	if err != nil {
		return nil, fmt.Errorf("exec in container %q: %w", r.ContainerID, err)
	}
	out, errOut := fit(stdout.Bytes(), stderr.Bytes(), api.MaxSyncOutput)
	return &runtimeapi.ExecSyncResponse{Stdout: out, Stderr: errOut, ExitCode: int32(code)}, nil
}

func fit(a, b []byte, max int) (_, _ []byte) {
	half := max / 2
	switch {
	case len(a)+len(b) <= max:
		return a, b
	case len(b) < half:
		return a[:max-len(b)], b
	case len(a) < half:
		return a, b[:max-len(a)]
	}
	return a[:half], b[:half]
}

type capped struct{ bytes.Buffer }

func (c *capped) Write(b []byte) (int, error) {
	c.Buffer.Write(b[:min(len(b), api.MaxSyncOutput-c.Len())])
	return len(b), nil
}
