package commands

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// newCheckpoint saves the state of running containers to archives.
func newCheckpoint(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "checkpoint",
		Usage:     "save the state of running containers",
		ArgsUsage: "CONTAINER...",
		Description: describe("Asks the runtime for an archive of each container's memory and files. Needs a runtime with CRIU; the embedded shim says that it has none.",
			"crishim checkpoint --export /tmp/web.tar web"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "export", Aliases: []string{"e"}, Usage: "write the archive to `FILE`, an absolute path on the runtime's host"},
		},
		Action: action(env, checkpointOptionsOf, runCheckpoint),
	}
}

type checkpointOptions struct {
	targets []string
	export  string
}

func checkpointOptionsOf(_ *Env, c *cli.Context) (o checkpointOptions, err error) {
	if err = argCount(c, 1, -1); err != nil {
		return o, err
	}
	o.targets, o.export = c.Args().Slice(), c.String("export")
	switch {
	case o.export == "":
		return o, usagef("checkpoint needs --export")
	case !filepath.IsAbs(o.export):
		return o, usagef("--export %s: want an absolute path", quote(o.export))
	case len(o.targets) > 1:
		return o, usagef("several containers cannot be written to the same --export file")
	}
	return o, nil
}

func runCheckpoint(ctx context.Context, env *Env, o checkpointOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return each(o.targets, func(target string) error {
		container, err := conn.Container(ctx, target, client.Running)
		if err != nil {
			return err
		}
		_, err = conn.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: container.GetId(), Location: o.export})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(env.Out, container.GetId())
		return err
	})
}
