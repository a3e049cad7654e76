package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
)

// session is how a verb connects the user to a container.
type session struct {
	stdin, tty bool
	options    stream.Options
}

// transportFlags are those of every verb that dials a streaming URL.
func (s *session) transportFlags() []cli.Flag {
	s.options.Transport = stream.TransportAuto
	return []cli.Flag{
		chosen(&s.options.Transport, []string{"spdy", "websocket"}, "transport", "streaming `PROTOCOL`: spdy, websocket, auto", "r"),
		stringFlag(&s.options.TLS.CA, "tls-ca", "verify the streaming server with the CA in `FILE`"),
		stringFlag(&s.options.TLS.Cert, "tls-cert", "client certificate `FILE` for the streaming server"),
		stringFlag(&s.options.TLS.Key, "tls-key", "`FILE` with the key of --tls-cert"),
		stringFlag(&s.options.TLS.ServerName, "tls-server-name", "`NAME` expected in the streaming server's certificate", "tls-sni"),
	}
}

// flags are those of a verb with a terminal.
func (s *session) flags() []cli.Flag {
	s.options.DetachKeys = stream.DefaultDetachKeys
	return append(s.transportFlags(),
		boolFlag(&s.stdin, "stdin", "pass stdin to the container", "i", "interactive"),
		boolFlag(&s.tty, "tty", "allocate a terminal", "t"),
		stringFlag(&s.options.DetachKeys, "detach-keys", "`KEYS` that end the session and leave the container alone; empty for none"),
	)
}

func (s *session) check(env *Env) error {
	s.options.Warn = env.warn
	if err := s.options.Check(); err != nil {
		return usagef("%v", err)
	}
	return nil
}

// fit gives up the terminal where stdin is none, as in a pipeline: -it in a
// script then works like -i.
func (s *session) fit(env *Env) {
	if s.tty && s.stdin && !env.InTerminal {
		s.tty = false
		env.warn("stdin is not a terminal: going on without --tty")
	}
}

// streams are the local ends that the flags ask for.
func (s *session) streams(env *Env) stream.Streams {
	streams := stream.Streams{Out: env.Out, TTY: s.tty}
	if s.stdin {
		streams.In = env.In
	}
	if !s.tty {
		streams.Err = env.Err
	}
	return streams
}

// dial asks for a URL and runs a session on it.
func (s *session) dial(ctx context.Context, streams stream.Streams, url func(context.Context) (string, error),
	run func(context.Context, string, stream.Streams, stream.Options) error,
) error {
	first, err := url(ctx)
	if err != nil {
		return err
	}
	o := s.options
	o.FreshURL = url
	return run(ctx, first, streams, o)
}

// attach connects streams to a container's own process.
func (s *session) attach(ctx context.Context, conn *client.Conn, id string, streams stream.Streams) error {
	request := &runtimeapi.AttachRequest{
		ContainerId: id, Tty: streams.TTY,
		Stdin: streams.In != nil, Stdout: streams.Out != nil, Stderr: streams.Err != nil,
	}
	return s.dial(ctx, streams, func(ctx context.Context) (string, error) {
		res, err := conn.Runtime.Attach(ctx, request)
		return res.GetUrl(), err
	}, stream.Attach)
}

// detached tells the user what became of the other side. That they detached is
// no failure.
func detached(err error, s stream.Streams, what string) error {
	out := s.Err // where to speak to the user of a session
	if out == nil {
		out = s.Out
	}
	if s.Out != nil {
		fmt.Fprintf(out, "\r\ndetached; %s\n", what)
	}
	if err == stream.ErrDetached { //nolint:errorlint // nothing else must be lost
		return nil
	}
	return err
}

const (
	// endTimeout is how long a runtime may take to notice that a container
	// has ended after its output has.
	endTimeout = 2 * time.Second
	endPeriod  = 20 * time.Millisecond
)

// endOf is the status of a container whose streams have ended. One that is not
// to be known is a failure: the container goes on, having closed its output or lost its
// attach, or it has been removed, and its status with it.
func endOf(ctx context.Context, conn *client.Conn, id string) error {
	deadline := time.NewTimer(endTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(endPeriod)
	defer tick.Stop()
	for {
		res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if isGone(err) {
			return errors.New("the container has been removed, and its status with it")
		}
		if err != nil {
			return fmt.Errorf("the status of the container is not known: %w", err)
		}
		if st := res.GetStatus(); st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			if code := st.GetExitCode(); code != 0 {
				return &stream.ExitError{Code: int(code)}
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return errors.New("the session has ended, and the container goes on")
		case <-tick.C:
		}
	}
}
