package image

import (
	"context"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/output"
)

type imagesOptions struct {
	filter cli.ImageFilter
	view   cli.View
}

func NewImages(in *cli.Invocation) *cli.Verb {
	o := &imagesOptions{}
	return &cli.Verb{
		Usage:     "List images",
		ArgsUsage: "[REPOSITORY[:TAG]]",
		Args:      cli.First(cli.CompleteImages, nil),
		Description: cli.WithExamples("Lists all images, or the images of one repository. --filter takes dangling=true|false, reference=REGEX, before=IMAGE or since=IMAGE.",
			"crishim images", "crishim images busybox", "crishim images -o json", "crishim images -q --filter dangling=false"),
		Flags: slices.Concat(o.view.ListFlags(output.ImageColumns, "IDs"), []urfave.Flag{
			o.view.WideFlag(),
			o.filter.Flag(),
			cli.BoolFlag(&o.view.Digests, "digests", "Show digests"),
			cli.BoolFlag(&o.view.Pinned, "pinned", "Show which images are pinned"),
		}),
		Images: true,
		Check:  o.check,
		RunOn:  o.run,
	}
}

func (o *imagesOptions) check(in *cli.Invocation, c *urfave.Context) error {
	words := c.Args().Slice()
	// As in docker, `image ls` lists images. For docker's other subcommands of image, the error names crishim's verb.
	if len(words) > 0 && !in.Compat {
		switch word, rest := words[0], words[1:]; word {
		case "ls", "list":
			words = rest
		case "cp":
			return &cli.UsageError{Text: "images lists images, and does not copy them", Next: "`crishim -r ENDPOINT save IMAGE | crishim -r ENDPOINT load` does"}
		case "rm", "remove", "inspect", "pull", "prune", "save", "load":
			verb := map[string]string{"rm": "rmi", "remove": "rmi", "inspect": "inspecti", "pull": "pull", "prune": "rmi --prune", "save": "save", "load": "load"}[word]
			return &cli.UsageError{Text: "images lists images, and does not " + word + " them", Next: "`crishim " + shellwords.Quote(append(strings.Fields(verb), rest...)...) + "` does"}
		}
	}
	if len(words) > 1 {
		return cli.ArgCount(c, 0, 1)
	}
	if len(words) == 1 {
		o.filter.Ref = words[0]
	}
	o.filter.Crictl, o.view.AnyFormat = in.Compat, in.Compat
	return o.view.Check(in)
}

func (o *imagesOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	images, err := o.filter.Images(ctx, conn)
	if err != nil {
		return err
	}
	if o.filter.Ref != "" && !printer.Compat && !o.view.Format.ForMachines() {
		images = cli.WithOnlyTags(images, o.filter.Ref)
	}
	err = output.Images(printer.Out, &runtimeapi.ListImagesResponse{Images: images}, o.view.Options)
	switch ref := o.filter.Ref; {
	case err != nil, len(images) > 0, !o.view.ForPeople():
	case ref != "":
		all, unfiltered := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
		if unfiltered == nil {
			printer.Note("hint: %s", cli.OtherImages(all.GetImages(), ref, true))
		}
	default:
		printer.Note("hint: `crishim pull busybox` gets an image")
	}
	return err
}
