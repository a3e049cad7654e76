package stream

import (
	"context"
	"fmt"
	"net/http"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

// ExecRequest is a CRI exec with what CRI has no field for.
type ExecRequest struct {
	ContainerID                string
	Cmd                        []string
	TTY, Stdin, Stdout, Stderr bool

	Env        []string // NAME=value, added to the container's environment
	WorkingDir string   // "": the container's
	User       string   // name or uid, with an optional group after a colon; "": the container's

	firstPID int // see sharedFirst
}

func (r ExecRequest) wanted() wanted {
	return wanted{stdin: r.Stdin, stdout: r.Stdout, stderr: r.Stderr, tty: r.TTY}
}

// Exec implements the CRI call.
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

// ExecURL checks a request and returns where its streams are to be had. The
// process is made when a client connects: one that was made and never started
// would stay with the engine until the container ends.
func (s *Server) ExecURL(ctx context.Context, r ExecRequest) (string, error) {
	if err := checkStreams(r.wanted()); err != nil {
		return "", err
	}
	if len(r.Cmd) == 0 {
		return "", fmt.Errorf("the request has no command: %w", errdefs.ErrInvalidArgument)
	}
	c, err := s.running(ctx, r.ContainerID, state.TypeContainer)
	if err != nil {
		return "", err
	}
	r.ContainerID, r.firstPID = c.ID, sharedFirst(c) // the request may have shortened the id
	return s.url(ctx, kindExec, &r)
}

func (s *Server) serveExec(w http.ResponseWriter, r *http.Request, token string, request *ExecRequest) {
	session, err := s.open(w, r, request.wanted())
	if err != nil {
		s.opts.Log.Debug("exec session did not begin", "container", request.ContainerID, "error", err)
		return
	}
	keep := s.sessions.add(token)
	defer s.sessions.remove(token)
	code, err := s.run(r.Context(), request, ends{
		stdin: session.stdin, stdout: session.stdout, stderr: session.stderr, resize: session.resize, detached: keep,
	})
	if err != nil {
		err = fmt.Errorf("exec in container %q: %w", request.ContainerID, s.why(err))
		s.opts.Log.Debug("exec session failed", "error", err)
	}
	session.finish(exitOutcome(code, err))
}
