package image

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

type imagesOptions struct {
	filter cli.Filter
	view   cli.View
}

func NewImages(env *cli.Env) *urfave.Command {
	o := &imagesOptions{}
	return &urfave.Command{
		Name:      "images",
		Aliases:   []string{"image", "img"},
		Usage:     "list images",
		ArgsUsage: "[REPOSITORY[:TAG]]",
		Description: cli.WithExamples("All images, or those of one repository. Filters: dangling=true|false, reference=REGEX, before=IMAGE, since=IMAGE.",
			"crishim images", "crishim images busybox", "crishim images -o json", "crishim images -q --filter dangling=false"),
		Flags: slices.Concat(o.view.ListFlags(output.ImageColumns), []urfave.Flag{
			o.view.WideFlag(),
			o.filter.ImageFlag(),
			cli.BoolFlag(&o.view.Digests, "digests", "show digests"),
			cli.BoolFlag(&o.view.Pinned, "pinned", "show which images are pinned"),
		}),
		Action: env.ForImages(env.Connected(o.check, o.run)),
	}
}

func (o *imagesOptions) check(env *cli.Env, c *urfave.Context) error {
	o.filter.ImageRef, o.filter.Crictl, o.view.AnyFormat = c.Args().First(), env.Compat, env.Compat
	return cmp.Or(cli.ArgCount(c, 0, 1), o.view.Check(env))
}

func (o *imagesOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	images, err := o.filter.Images(ctx, conn)
	if err != nil {
		return err
	}
	return output.Images(env.Out, &runtimeapi.ListImagesResponse{Images: images}, o.view.Options)
}
