package commands

import (
	"context"
	"slices"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

type inspectiOptions struct {
	refs   []string
	filter filter
	quiet  bool
	view   view
}

// newInspecti shows all that the runtime knows of images.
func newInspecti(env *Env) *cli.Command {
	o := &inspectiOptions{}
	return &cli.Command{
		Name:      "inspecti",
		Usage:     "show everything about images",
		ArgsUsage: "[IMAGE...]",
		Description: describe("Images by name or id; without arguments those that the filters choose. One image is an object, several are an array.",
			"crishim inspecti busybox", "crishim inspecti -q --filter dangling=true"),
		Flags: slices.Concat(o.view.flags(), []cli.Flag{
			detailsFlag(&o.quiet),
			typed(&o.filter.name, parsePattern, "name", "images whose name matches `REGEX`"),
			o.filter.imageFlag(),
		}),
		Action: env.connected(o.check, o.run),
	}
}

func (o *inspectiOptions) check(env *Env, c *cli.Context) error {
	o.refs = c.Args().Slice()
	return o.view.check(env)
}

func (o *inspectiOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	refs := o.refs
	if len(refs) == 0 {
		images, err := o.filter.images(ctx, conn)
		if err != nil {
			return err
		}
		for _, image := range images {
			refs = append(refs, image.GetId())
		}
	}
	return showEach(env, o.view, output.InspectImages, refs, nil, func(ref string) (*runtimeapi.ImageStatusResponse, error) {
		return imageStatus(ctx, conn, ref, !o.quiet)
	})
}
