package container

import (
	"cmp"
	"context"
	"errors"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
)

type attachOptions struct {
	target  string
	in      cli.Scope
	session cli.SessionOptions
}

func NewAttach(in *cli.Invocation) *cli.Verb {
	o := &attachOptions{}
	return &cli.Verb{
		Usage:     "Attach to a running container",
		ArgsUsage: "CONTAINER",
		Args:      cli.First(cli.CompleteContainers("running"), nil),
		Description: cli.WithExamples("Attaches to a container, given by name, pod/container, pod or ID. When the container ends, attach exits with its status.\n"+
			"-it needs a container that was created with stdin and a TTY.",
			"crishim attach web", "crishim attach -it shell", "crishim attach -it --detach-keys ctrl-x shell"),
		Flags: append(o.session.Flags(), o.in.ContainerFlag(), o.in.NamespaceFlag()),
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *attachOptions) check(in *cli.Invocation, c *urfave.Context) error {
	o.target = c.Args().First()
	return cmp.Or(cli.ArgCount(c, 1, 1), o.session.Check(in))
}

// endTimeout is how long a runtime may take to notice the end of a container after the end of its output. A container
// may also close its output and keep running.
const endTimeout = 2 * time.Second

func (o *attachOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	o.session.DropTTYWithoutTerminal(printer)
	c, err := conn.FindContainer(ctx, o.in.Query(o.target, client.RunningAttempt))
	if err != nil {
		return err
	}
	s := o.session.Streams(printer)
	err = o.session.Attach(ctx, conn, c.GetId(), s)
	switch {
	case printer.Compat && err == stream.ErrDetached: //nolint:errorlint // nothing else must be lost
		return nil // like crictl, print nothing after a detach
	case errors.Is(err, stream.ErrDetached):
		return cli.NoteDetach(err, s, cli.ContainerName(c)+" keeps running")
	case err != nil, printer.Compat: // crictl does not return the container's status
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, endTimeout, errors.New("the session has ended, and the container keeps running"))
	defer cancel()
	return cli.WaitExitStatus(ctx, printer, conn, c.GetId())
}
