package container

import (
	"context"
	"path/filepath"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
)

type checkpointOptions struct {
	container, export string
	in                cli.Scope
}

func NewCheckpoint(in *cli.Invocation) *cli.Verb {
	o := &checkpointOptions{}
	return &cli.Verb{
		Usage:     "Checkpoint a running container",
		ArgsUsage: "CONTAINER...",
		Args:      cli.CompleteContainers(),
		Description: cli.WithExamples("Asks the runtime to write the memory and files of a container to an archive. The runtime needs CRIU; crishim's dockershim does not support checkpoints.",
			"crishim checkpoint --export /tmp/web.tar web"),
		Flags: []urfave.Flag{cli.StringFlag(&o.export, "export", "Write the archive to `FILE`, an absolute path on the node", "e"), o.in.NamespaceFlag()},
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *checkpointOptions) check(_ *cli.Invocation, c *urfave.Context) error {
	o.container = c.Args().First()
	switch {
	case !c.Args().Present():
		return cli.ArgCount(c, 1, -1)
	case o.export == "":
		return cli.Usagef("checkpoint needs --export")
	case !filepath.IsAbs(o.export):
		return cli.Invalid("export", o.export, "must be an absolute path")
	case c.Args().Len() > 1:
		return cli.Usagef("several containers cannot be written to the same --export file")
	}
	return nil
}

func (o *checkpointOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	c, err := conn.FindContainer(ctx, o.in.Query(o.container, client.RunningAttempt))
	if err != nil {
		return err
	}
	if _, err = conn.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: c.GetId(), Location: o.export}); err != nil {
		return err
	}
	return printer.Say("%s", c.GetId())
}
