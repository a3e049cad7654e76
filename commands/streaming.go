package commands

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client/stream"
)

// transportFlags are the flags of every verb that dials a streaming URL.
func transportFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "transport", Aliases: []string{"r"}, Value: stream.TransportAuto, Usage: "streaming `PROTOCOL`: spdy, websocket, auto"},
		&cli.StringFlag{Name: "tls-ca", Usage: "verify the streaming server with the CA in `FILE`"},
		&cli.StringFlag{Name: "tls-cert", Usage: "client certificate `FILE` for the streaming server"},
		&cli.StringFlag{Name: "tls-key", Usage: "`FILE` with the key of --tls-cert"},
		&cli.StringFlag{Name: "tls-server-name", Aliases: []string{"tls-sni"}, Usage: "`NAME` expected in the streaming server's certificate"},
	}
}

// sessionFlags are the flags of a verb with a terminal.
func sessionFlags() []cli.Flag {
	return append(transportFlags(),
		&cli.BoolFlag{Name: "stdin", Aliases: []string{"i", "interactive"}, Usage: "pass stdin on"},
		&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "with a terminal"},
		&cli.StringFlag{Name: "detach-keys", Value: stream.DefaultDetachKeys, Usage: "`KEYS` that end the session and leave the container alone; empty for none"},
	)
}

// readTransport reads transportFlags and sessionFlags.
func readTransport(env *Env, c *cli.Context) (stream.Options, error) {
	o := stream.Options{
		Transport:  c.String("transport"),
		DetachKeys: c.String("detach-keys"),
		Warn:       env.warn,
		TLS: stream.TLS{
			CA: c.String("tls-ca"), Cert: c.String("tls-cert"), Key: c.String("tls-key"),
			ServerName: c.String("tls-server-name"),
		},
	}
	if err := o.Check(); err != nil {
		return o, usagef("%v", err)
	}
	return o, nil
}

// session is how a verb connects the user to a container.
type session struct {
	stdin, tty bool
	options    stream.Options
}

func readSession(env *Env, c *cli.Context) (s session, err error) {
	s.stdin, s.tty = c.Bool("stdin"), c.Bool("tty")
	s.options, err = readTransport(env, c)
	return s, err
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
func (s session) streams(env *Env) stream.Streams {
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
func (s session) dial(ctx context.Context, streams stream.Streams, url func(context.Context) (string, error),
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
