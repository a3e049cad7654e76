package commands

import (
	"cmp"
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
)

type attachOptions struct {
	target  string
	session session
}

// newAttach connects to a running container's own process.
func newAttach(env *Env) *cli.Command {
	o := &attachOptions{}
	return &cli.Command{
		Name:      "attach",
		Usage:     "connect to the process of a running container",
		ArgsUsage: "CONTAINER",
		Description: describe("The container by name, pod/container, pod or id. When it ends, so does attach, with its status.\n"+
			"-it needs a container that was made with stdin and tty.",
			"crishim attach web", "crishim attach -it shell", "crishim attach -it --detach-keys ctrl-x shell"),
		Flags:  o.session.flags(),
		Action: env.connected(o.check, o.run),
	}
}

func (o *attachOptions) check(env *Env, c *cli.Context) error {
	o.target = c.Args().First()
	return cmp.Or(argCount(c, 1, 1), o.session.check(env))
}

func (o *attachOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	o.session.fit(env)
	c, err := conn.Container(ctx, o.target, client.Running)
	if err != nil {
		return err
	}
	s := o.session.streams(env)
	err = o.session.attach(ctx, conn, c.GetId(), s)
	switch {
	case errors.Is(err, stream.ErrDetached):
		return detached(err, s, containerName(c)+" goes on")
	case err != nil, env.compat: // crictl knows no status of what it was attached to
		return err
	}
	return endOf(ctx, conn, c.GetId())
}
