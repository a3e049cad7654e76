package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newInspecti shows all that the runtime knows of images.
func newInspecti(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "inspecti",
		Usage:     "show everything about images",
		ArgsUsage: "[IMAGE...]",
		Description: describe("Images by name or id; without arguments those that the filters choose. One image is an object, several are an array.",
			"crishim inspecti busybox", "crishim inspecti -q --filter dangling=true"),
		Flags: append(formatFlags(),
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "leave out the runtime's own details"},
			&cli.StringFlag{Name: "name", Usage: "images whose name matches `REGEX`"},
			&cli.StringSliceFlag{Name: "filter", Aliases: []string{"f"}, Usage: "only images for which `KEY=VALUE` holds, as in images"},
		),
		Action: action(env, inspectiOptionsOf, runInspecti),
	}
}

type inspectiOptions struct {
	refs    []string
	name    pattern
	filters imageFilters
	quiet   bool
	output  output.Options
}

func inspectiOptionsOf(env *Env, c *cli.Context) (o inspectiOptions, err error) {
	o.refs, o.quiet = c.Args().Slice(), c.Bool("quiet")
	if o.name, err = readPattern(c, "name"); err != nil {
		return o, err
	}
	if o.filters, err = parseImageFilters(c.StringSlice("filter")); err != nil {
		return o, err
	}
	o.output, err = readFormat(env, c)
	o.output.Quiet = false
	return o, err
}

func (o inspectiOptions) request(ref string) *runtimeapi.ImageStatusRequest {
	return &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}, Verbose: !o.quiet}
}

func runInspecti(ctx context.Context, env *Env, o inspectiOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	refs := o.refs
	if len(refs) == 0 {
		if refs, err = o.chosen(ctx, conn); err != nil {
			return err
		}
	}
	var found []*runtimeapi.ImageStatusResponse
	failed := each(refs, func(ref string) error {
		res, err := conn.Image.ImageStatus(ctx, o.request(ref))
		if err != nil {
			return err
		}
		if res.GetImage() == nil {
			return noSuchImage(ref)
		}
		found = append(found, res)
		return nil
	})
	if len(found) == 0 && failed != nil {
		return failed
	}
	return join(output.InspectImages(env.Out, found, o.output), failed)
}

func noSuchImage(ref string) error {
	return withHint(fmt.Errorf("no such image %s", quote(ref)), "crishim images lists them, crishim pull %s gets it", ref)
}

// chosen are the ids of the images that the filters choose.
func (o inspectiOptions) chosen(ctx context.Context, conn *client.Conn) ([]string, error) {
	res, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	images, err := o.filters.apply(res.GetImages())
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(images, func(a, b *runtimeapi.Image) int { return strings.Compare(imageName(a), imageName(b)) })
	var ids []string
	for _, image := range images {
		if o.name.matches(imageName(image)) {
			ids = append(ids, image.GetId())
		}
	}
	return ids, nil
}
