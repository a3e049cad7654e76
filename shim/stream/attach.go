package stream

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

func (s *Server) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	want := wanted{stdin: r.GetStdin(), stdout: r.GetStdout(), stderr: r.GetStderr(), tty: r.GetTty()}
	if err := want.check(); err != nil {
		return nil, err
	}
	id := r.GetContainerId()
	if _, err := s.running(ctx, id, state.TypeContainer); err != nil {
		return nil, err
	}
	url, err := s.url(ctx, "attach", session{server: s, want: want, run: func(ctx context.Context, e ends) error {
		err := s.attach(ctx, id, e)
		if err != nil {
			err = fmt.Errorf("attach to container %q: %w", id, err)
			s.opts.Log.Debug("attach session failed", "error", err)
		}
		return err
	}}.serve)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.AttachResponse{Url: url}, nil
}

// attach connects the client to the container's streams until the container ends or the client leaves.
func (s *Server) attach(ctx context.Context, id string, client ends) error {
	c, err := s.running(ctx, id, state.TypeContainer)
	if err != nil {
		return err
	}
	conn, err := s.engine.ContainerAttach(ctx, c.ID, container.AttachOptions{
		Stream: true,
		Stdin:  client.stdin != nil && c.Config.OpenStdin,
		Stdout: true, Stderr: true, // the engine ends the session when its outputs end
		DetachKeys: noAttachKeys,
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	switch {
	case client.stdin == nil:
	case c.Config.OpenStdin:
		// At the end of the input the engine closes the container's stdin if stdin_once is set.
		go copyInput(conn, client.stdin)
	default:
		go func() { _, _ = io.Copy(io.Discard, client.stdin) }() // unread input would block other data of the client
	}
	helpers, stop := context.WithCancel(ctx)
	defer stop()
	if client.resize != nil {
		go followSizes(helpers, client.resize, func(height, width uint) {
			// An error means that the container has just ended.
			_ = s.engine.ContainerResize(ctx, c.ID, container.ResizeOptions{Height: height, Width: width})
		})
	}
	out := newOutput(conn, c.Config.Tty, client) // the framing depends on the container, not on the client's request
	_ = out.open()                               // nothing is held yet
	copied := make(chan error, 1)
	go func() { copied <- out.copy() }()
	var ending <-chan struct{}
	if pid := sharedFirst(c); pid != 0 {
		ending = s.containerEnd(helpers, c.ID, pid)
	}
	ended := false
	for {
		select {
		case err := <-copied:
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case ended:
				return nil
			case err == nil, errors.Is(err, io.ErrUnexpectedEOF): // the container ended within a record
				return s.engineThere(ctx, c.ID)
			}
			return err
		case <-ending: // an exec in the container may keep the engine from noticing the end
			ended, ending = true, nil
			out.drain(orphanDrain)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// engineThere returns an error if the engine itself has ended. In the stream this looks like the end of the container.
func (s *Server) engineThere(ctx context.Context, id string) error {
	_, err := s.engine.ContainerInspect(ctx, id)
	if err == nil || errdefs.IsNotFound(err) || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the output ended with the engine: %w", err)
}
