package image

import (
	"context"
	"io"
	"slices"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

type inspectiOptions struct {
	refs   []string
	filter cli.ImageFilter
	quiet  bool
	view   cli.View
}

func NewInspecti(in *cli.Invocation) *cli.Verb {
	o := &inspectiOptions{}
	return &cli.Verb{
		Usage:     "Show detailed information on images",
		ArgsUsage: "[IMAGE...]",
		Args:      cli.CompleteImages,
		Description: cli.WithExamples("Shows images by name or ID; without arguments, the images that the filters choose. One image is an object, several are an array.",
			"crishim inspecti busybox", "crishim inspecti -q --filter dangling=true"),
		Flags: slices.Concat(o.view.Flags(), []urfave.Flag{
			cli.DetailsFlag(&o.quiet),
			cli.Typed(&o.filter.Name, cli.ParsePattern, "name", "Filter by names that match `REGEX`"),
			o.filter.Flag(),
		}),
		Images: true,
		Check:  o.check,
		RunOn:  o.run,
	}
}

func (o *inspectiOptions) check(in *cli.Invocation, c *urfave.Context) error {
	o.refs, o.filter.Crictl = c.Args().Slice(), in.Compat
	return o.view.Check(in)
}

func (o *inspectiOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	refs := o.refs
	if len(refs) == 0 {
		images, err := o.filter.Images(ctx, conn)
		if err != nil {
			return err
		}
		for _, image := range images {
			refs = append(refs, image.GetId())
		}
	}
	asked := map[*runtimeapi.ImageStatusResponse]string{}
	show := func(w io.Writer, images []*runtimeapi.ImageStatusResponse, options output.Options) error {
		return output.InspectImages(w, images, asked, options)
	}
	return cli.ShowEach(printer, o.view, show, refs, len(o.refs) == 0, nil, func(ref string) (*runtimeapi.ImageStatusResponse, error) {
		res, err := cli.ImageStatus(ctx, conn, ref, !o.quiet, true)
		if err == nil {
			asked[res] = tagOf(res.GetImage(), ref)
		}
		return res, err
	})
}
