package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/enginestream"
	"github.com/crishim/crishim/shim/state"
)

// Attach implements the CRI call.
func (s *Server) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	if err := checkStreams(attachWanted(r)); err != nil {
		return nil, err
	}
	if _, err := s.running(ctx, r.GetContainerId(), state.TypeContainer); err != nil {
		return nil, err
	}
	url, err := s.url(ctx, kindAttach, r)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.AttachResponse{Url: url}, nil
}

func attachWanted(r *runtimeapi.AttachRequest) wanted {
	return wanted{stdin: r.GetStdin(), stdout: r.GetStdout(), stderr: r.GetStderr(), tty: r.GetTty()}
}

func (s *Server) serveAttach(w http.ResponseWriter, r *http.Request, request *runtimeapi.AttachRequest) {
	session, err := s.open(w, r, attachWanted(request))
	if err != nil {
		s.opts.Log.Debug("attach session did not begin", "container", request.GetContainerId(), "error", err)
		return
	}
	err = s.attach(r.Context(), request.GetContainerId(), session)
	if err != nil {
		err = fmt.Errorf("attach to container %q: %w", request.GetContainerId(), s.why(err))
		s.opts.Log.Debug("attach session failed", "error", err)
	}
	session.finish(err)
}

// attach connects the client with the container's streams, from now on, until
// the container ends or the client leaves. The container does not notice either.
func (s *Server) attach(ctx context.Context, id string, client *session) error {
	c, err := s.running(ctx, id, state.TypeContainer)
	if err != nil {
		return err
	}
	conn, err := s.engine.ContainerAttach(ctx, c.ID, container.AttachOptions{
		Stream: true,
		Stdin:  client.stdin != nil && c.Config.OpenStdin,
		Stdout: true, Stderr: true, // the engine ends the session with its outputs
		DetachKeys: noAttachKeys,
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if client.stdin != nil {
		go attachInput(conn, client.stdin, c.Config.OpenStdin)
	}
	if client.resize != nil {
		go s.resizeContainer(ctx, c.ID, client.resize)
	}
	// How the bytes come depends on the container, whatever the client asked for.
	out := enginestream.NewOutput(c.Config.Tty, client.stdout, client.stderr)
	_ = out.Open() // nothing is held back yet
	copied := make(chan error, 1)
	go func() { copied <- out.Copy(conn.Reader) }()
	helpers, stop := context.WithCancel(ctx)
	defer stop()
	var ending, drained <-chan struct{}
	if pid := sharedFirst(c); pid != 0 {
		ending = s.containerEnd(helpers, c.ID, pid)
	}
	for {
		select {
		case err := <-copied:
			switch {
			case err != nil && ctx.Err() != nil:
				return context.Cause(ctx)
			case err == nil, errors.Is(err, io.ErrUnexpectedEOF): // the container ended inside a record
				return s.engineThere(ctx, c.ID)
			}
			return err
		case <-ending: // an exec in the container may keep the engine from noting it
			ending, drained = nil, out.Quiet(helpers, lastWords)
		case <-drained:
			conn.Close()
			<-copied //nolint:errcheck // the connection was just closed under it
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// engineThere tells a session that ended with its container from one that the
// engine's end cut off: on the wire both are an end of file.
func (s *Server) engineThere(ctx context.Context, id string) error {
	_, err := s.engine.ContainerInspect(ctx, id)
	if err == nil || errdefs.IsNotFound(err) || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the output ended with the engine: %w", err)
}

// attachInput passes input on. Its end closes the container's input when that
// was made for one client only (stdin_once); the engine knows.
func attachInput(conn types.HijackedResponse, in io.Reader, open bool) {
	if open {
		if err := enginestream.Copy(conn.Conn, in); err == nil {
			_ = conn.CloseWrite()
			return
		}
	}
	_, _ = io.Copy(io.Discard, in) // unread input would hold up what else the client sends
}

// resizeContainer applies sizes until there are no more.
func (s *Server) resizeContainer(ctx context.Context, id string, sizes <-chan terminalSize) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			if size.Width > 0 && size.Height > 0 {
				// A failure means that the container has just ended.
				_ = s.engine.ContainerResize(ctx, id, container.ResizeOptions{Height: uint(size.Height), Width: uint(size.Width)})
			}
		case <-ctx.Done():
			return
		}
	}
}
