package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/output"
)

// SessionOptions has the options of exec and attach.
type SessionOptions struct {
	Stdin, TTY bool
	Options    stream.Options
	Input      io.Reader // the local stdin
	terminal   bool      // stdin is a terminal
}

// TransportFlags returns the flags of verbs that dial a streaming URL.
func (s *SessionOptions) TransportFlags() []urfave.Flag {
	s.Options.Transport = stream.TransportAuto
	return []urfave.Flag{
		chosen(&s.Options.Transport, []string{"spdy", "websocket"}, "transport", "Use streaming `PROTOCOL`: spdy, websocket, auto", "r"),
		StringFlag(&s.Options.TLS.CA, "tls-ca", "Verify the streaming server with the CA in `FILE`"),
		StringFlag(&s.Options.TLS.Cert, "tls-cert", "Present the client certificate in `FILE` to the streaming server"),
		StringFlag(&s.Options.TLS.Key, "tls-key", "Use the private key in `FILE` for --tls-cert"),
		StringFlag(&s.Options.TLS.ServerName, "tls-server-name", "Expect `NAME` in the streaming server's certificate", "tls-sni"),
	}
}

// Flags returns the flags of a verb with a terminal.
func (s *SessionOptions) Flags() []urfave.Flag {
	s.Options.DetachKeys = stream.DefaultDetachKeys
	return append(s.TransportFlags(),
		BoolFlag(&s.Stdin, "stdin", "Pass stdin to the container", "i", "interactive"),
		BoolFlag(&s.TTY, "tty", "Allocate a pseudo-TTY", "t"),
		StringFlag(&s.Options.DetachKeys, "detach-keys", "Override the key sequence for detaching from the container: `KEYS`, or empty for none"),
	)
}

// Check checks the flags.
func (s *SessionOptions) Check(in *Invocation) error {
	s.Options.Warn, s.Input, s.terminal = in.Printer.Warn, in.In, in.InTerminal
	if err := s.Options.Check(); err != nil {
		return Usagef("%v", err)
	}
	return nil
}

// DropTTYWithoutTerminal lets -it work like -i if stdin is not a terminal, as in a pipeline.
func (s *SessionOptions) DropTTYWithoutTerminal(p *Printer) {
	if s.TTY && s.Stdin && !s.terminal {
		s.TTY = false
		p.Warn("stdin is not a terminal: going on without --tty")
	}
}

// Streams returns the local streams of the session.
func (s *SessionOptions) Streams(p *Printer) stream.Streams {
	streams := stream.Streams{Out: p.Out, TTY: s.TTY}
	if s.Stdin {
		streams.In = s.Input
	}
	if !s.TTY {
		streams.Err = p.Err
	}
	return streams
}

// Dial asks for a URL and runs a session on it.
func (s *SessionOptions) Dial(ctx context.Context, conn *client.Conn, streams stream.Streams, url func(context.Context) (string, error)) error {
	first, err := url(ctx)
	if err != nil {
		return err
	}
	o := s.Options
	o.FreshURL, o.Dial = url, conn.DialThere
	return stream.Run(ctx, first, streams, o)
}

// Attach connects streams to the container's process.
func (s *SessionOptions) Attach(ctx context.Context, conn *client.Conn, id string, streams stream.Streams) error {
	request := &runtimeapi.AttachRequest{
		ContainerId: id, Tty: streams.TTY,
		Stdin: streams.In != nil, Stdout: streams.Out != nil, Stderr: streams.Err != nil,
	}
	return s.Dial(ctx, conn, streams, func(ctx context.Context) (string, error) {
		res, err := conn.Runtime.Attach(ctx, request)
		return res.GetUrl(), err
	})
}

// NoteDetach prints a note about the part that keeps running after a detach. A detach is not a failure.
func NoteDetach(err error, s stream.Streams, what string) error {
	out := s.Err
	if out == nil {
		out = s.Out
	}
	if s.Out != nil {
		fmt.Fprintf(out, "\r\ndetached; %s\n", output.Sanitize(what))
	}
	if err == stream.ErrDetached { //nolint:errorlint // nothing else must be lost
		return nil
	}
	return err
}

// endPeriod is the poll interval for the end of a container.
const endPeriod = 20 * time.Millisecond

// WaitExitStatus waits for a container to end, and returns a non-zero exit status as an error. It warns if the
// container ran out of memory, because the status alone is the same as for any SIGKILL.
func WaitExitStatus(ctx context.Context, p *Printer, conn *client.Conn, id string) error {
	for {
		res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		switch {
		case IsGone(err):
			return errors.New("the container has been removed, and its status with it")
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("the status of the container is not known: %w", err)
		}
		if st := res.GetStatus(); st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			if st.GetReason() == "OOMKilled" {
				p.Warn("the container ran out of memory and was killed")
			}
			if code := st.GetExitCode(); code != 0 {
				return &stream.ExitError{Code: int(code)}
			}
			return nil
		}
		if err := Sleep(ctx, endPeriod); err != nil {
			return err
		}
	}
}
