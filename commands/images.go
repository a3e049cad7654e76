package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/output"
)

// newImages lists images.
func newImages(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "images",
		Aliases:   []string{"image", "img"},
		Usage:     "list images",
		ArgsUsage: "[REPOSITORY[:TAG]]",
		Description: describe("All images, or those of one repository. Filters: dangling=true|false, reference=REGEX, before=IMAGE, since=IMAGE.",
			"crishim images", "crishim images busybox", "crishim images -o json", "crishim images -q --filter dangling=false"),
		Flags: append(listFlags(output.ImageColumns),
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "more columns, as -o wide"},
			&cli.StringSliceFlag{Name: "filter", Aliases: []string{"f"}, Usage: "only images for which `KEY=VALUE` holds"},
			&cli.BoolFlag{Name: "digests", Usage: "show digests"},
			&cli.BoolFlag{Name: "pinned", Usage: "show whether an image is pinned"},
		),
		Action: action(env, imagesOptionsOf, runImages),
	}
}

type imagesOptions struct {
	name    string
	filters imageFilters
	output  output.Options
}

func imagesOptionsOf(env *Env, c *cli.Context) (o imagesOptions, err error) {
	if err = argCount(c, 0, 1); err != nil {
		return o, err
	}
	o.name = c.Args().First()
	if o.filters, err = parseImageFilters(c.StringSlice("filter")); err != nil {
		return o, err
	}
	o.output, err = readListFormat(env, c, output.ImageColumns)
	o.output.Digests, o.output.Pinned = c.Bool("digests"), c.Bool("pinned")
	return o, err
}

// request asks for everything when only the client can tell what a name
// means: many runtimes ignore the filter or know one spelling only.
func (o imagesOptions) request() *runtimeapi.ListImagesRequest {
	return &runtimeapi.ListImagesRequest{}
}

func runImages(ctx context.Context, env *Env, o imagesOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	res, err := conn.Image.ListImages(ctx, o.request())
	if err != nil {
		return err
	}
	images := namedImages(res.GetImages(), o.name)
	if images, err = o.filters.apply(images); err != nil {
		return err
	}
	return output.Images(env.Out, &runtimeapi.ListImagesResponse{Images: images}, o.output)
}
