package commands

import (
	"context"
	"path/filepath"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

type checkpointOptions struct{ container, export string }

// newCheckpoint saves the state of a running container to an archive.
func newCheckpoint(env *Env) *cli.Command {
	o := &checkpointOptions{}
	return &cli.Command{
		Name:      "checkpoint",
		Usage:     "save the state of running containers",
		ArgsUsage: "CONTAINER...",
		Description: describe("Asks the runtime for an archive of each container's memory and files. Needs a runtime with CRIU; the embedded shim says that it has none.",
			"crishim checkpoint --export /tmp/web.tar web"),
		Flags:  []cli.Flag{stringFlag(&o.export, "export", "write the archive to `FILE`, an absolute path on the runtime's host", "e")},
		Action: env.connected(o.check, o.run),
	}
}

func (o *checkpointOptions) check(_ *Env, c *cli.Context) error {
	o.container = c.Args().First()
	switch {
	case !c.Args().Present():
		return argCount(c, 1, -1)
	case o.export == "":
		return usagef("checkpoint needs --export")
	case !filepath.IsAbs(o.export):
		return invalid("export", o.export, "must be an absolute path")
	case c.Args().Len() > 1:
		return usagef("several containers cannot be written to the same --export file")
	}
	return nil
}

func (o *checkpointOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	c, err := conn.Container(ctx, o.container, client.Running)
	if err != nil {
		return err
	}
	if _, err = conn.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: c.GetId(), Location: o.export}); err != nil {
		return err
	}
	return env.say("%s", c.GetId())
}
