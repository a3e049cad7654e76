package container

import (
	"cmp"
	"context"
	"slices"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

type psOptions struct {
	filter       cli.Filter
	view         cli.View
	resolveImage bool
}

// NewPs returns the verb that lists containers: the running ones, or what the filters choose.
func NewPs(env *cli.Env) *urfave.Command {
	o := &psOptions{}
	return &urfave.Command{
		Name:  "ps",
		Usage: "list containers",
		Description: cli.WithExamples("Running containers, newest first; --all, --state, --latest and --last choose others.",
			"crishim ps", "crishim ps -a --name '^web'", "crishim ps -q --pod web", "crishim ps --all -o json"),
		Flags: slices.Concat(o.view.ListFlags(output.ContainerColumns), o.filter.ContainerFlags(), []urfave.Flag{
			cli.StringFlag(&o.filter.ID, "id", "containers whose id begins with `ID`"),
			o.view.WideFlag(),
			cli.BoolFlag(&o.resolveImage, "resolve-image-path", "show the names of images instead of their ids", "r"),
		}),
		Action: env.Connected(o.check, o.run),
	}
}

func (o *psOptions) check(env *cli.Env, c *urfave.Context) error {
	o.filter.Crictl = env.Compat
	return cmp.Or(cli.ArgCount(c, 0, 0), o.filter.Check(true), o.view.Check(env))
}

func (o *psOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	containers, err := o.filter.Containers(ctx, conn)
	if err != nil {
		return err
	}
	if o.resolveImage {
		if err := resolveImages(ctx, conn, containers); err != nil {
			return err
		}
	}
	if !env.Compat && output.NeedsPods(containers, o.view.Options) {
		if o.view.Pods, err = cli.PodNames(ctx, conn); err != nil {
			return err
		}
	}
	return output.Containers(env.Out, &runtimeapi.ListContainersResponse{Containers: containers}, o.view.Options)
}

// resolveImages replaces the ids of images by their names.
func resolveImages(ctx context.Context, conn *client.Conn, containers []*runtimeapi.Container) error {
	res, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, image := range res.GetImages() {
		if name := cli.ImageName(image); name != image.GetId() {
			names[image.GetId()] = name
		}
	}
	for _, c := range containers {
		for _, id := range []string{c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage()} {
			if name, ok := names[id]; ok {
				c.Image = &runtimeapi.ImageSpec{Image: name}
				break
			}
		}
	}
	return nil
}
