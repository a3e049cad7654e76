package commands

import (
	"cmp"
	"context"
	"slices"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

type psOptions struct {
	filter       filter
	view         view
	resolveImage bool
}

// newPs lists containers: the running ones, or what filters choose.
func newPs(env *Env) *cli.Command {
	o := &psOptions{}
	return &cli.Command{
		Name:  "ps",
		Usage: "list containers",
		Description: describe("Running containers, newest first; --all, --state, --latest and --last choose others.",
			"crishim ps", "crishim ps -a --name '^web'", "crishim ps -q --pod web", "crishim ps --all -o json"),
		Flags: slices.Concat(o.view.listFlags(output.ContainerColumns), o.filter.containerFlags(), []cli.Flag{
			stringFlag(&o.filter.id, "id", "containers whose id begins with `ID`"),
			o.view.wideFlag(),
			boolFlag(&o.resolveImage, "resolve-image-path", "show an image's name instead of its id", "r"),
		}),
		Action: env.connected(o.check, o.run),
	}
}

func (o *psOptions) check(env *Env, c *cli.Context) error {
	return cmp.Or(argCount(c, 0, 0), o.filter.check(true), o.view.check(env))
}

func (o *psOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	containers, err := o.filter.containers(ctx, conn)
	if err != nil {
		return err
	}
	if o.resolveImage {
		if err := resolveImages(ctx, conn, containers); err != nil {
			return err
		}
	}
	if !env.compat && output.NeedsPods(containers, o.view.Options) {
		if o.view.Pods, err = podNames(ctx, conn); err != nil {
			return err
		}
	}
	return output.Containers(env.Out, &runtimeapi.ListContainersResponse{Containers: containers}, o.view.Options)
}

// resolveImages puts names where containers only know ids, with one call for
// all of them.
func resolveImages(ctx context.Context, conn *client.Conn, containers []*runtimeapi.Container) error {
	res, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, image := range res.GetImages() {
		if name := imageName(image); name != image.GetId() {
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
