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

type imagesOptions struct {
	filter filter
	view   view
}

// newImages lists images.
func newImages(env *Env) *cli.Command {
	o := &imagesOptions{}
	return &cli.Command{
		Name:      "images",
		Aliases:   []string{"image", "img"},
		Usage:     "list images",
		ArgsUsage: "[REPOSITORY[:TAG]]",
		Description: describe("All images, or those of one repository. Filters: dangling=true|false, reference=REGEX, before=IMAGE, since=IMAGE.",
			"crishim images", "crishim images busybox", "crishim images -o json", "crishim images -q --filter dangling=false"),
		Flags: slices.Concat(o.view.listFlags(output.ImageColumns), []cli.Flag{
			o.view.wideFlag(),
			o.filter.imageFlag(),
			boolFlag(&o.view.Digests, "digests", "show digests"),
			boolFlag(&o.view.Pinned, "pinned", "show whether an image is pinned"),
		}),
		Action: env.connected(o.check, o.run),
	}
}

func (o *imagesOptions) check(env *Env, c *cli.Context) error {
	o.filter.imageRef = c.Args().First()
	return cmp.Or(argCount(c, 0, 1), o.view.check(env))
}

func (o *imagesOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	images, err := o.filter.images(ctx, conn)
	if err != nil {
		return err
	}
	return output.Images(env.Out, &runtimeapi.ListImagesResponse{Images: images}, o.view.Options)
}
