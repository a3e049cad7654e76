package image

import (
	"context"
	"fmt"
	"io"
	"strings"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/gogc"
	"github.com/crishim/crishim/internal/imagefile"
	"github.com/crishim/crishim/internal/imageref"
	"github.com/crishim/crishim/internal/shellwords"
)

type saveOptions struct {
	images    []string
	output    string // "" or "-": standard output
	format    string
	platforms platformFlag
	quiet     bool
}

// NewSave returns the verb that writes images into an archive. CRI has no call for it. crishim's dockershim has one in
// its private service, and containerd has its own API on the CRI socket.
func NewSave(in *cli.Invocation) *cli.Verb {
	o := &saveOptions{format: string(imagefile.OCI)}
	return &cli.Verb{
		Usage:     "Save images to a tar archive",
		ArgsUsage: "IMAGE...",
		Args:      cli.CompleteImages,
		Description: cli.WithExamples("Writes an OCI layout that docker load can also read, or an archive in the older format of docker save. Layers shared by several\n"+
			"images are written once. An image given by ID has no name in the archive. Works on Docker and containerd, not on other runtimes.\n"+
			"Data from Docker is kept in a nameless file in TMPDIR or /var/tmp meanwhile.",
			"crishim save -o busybox.tar busybox", "crishim save busybox alpine:3 | zstd > images.tar.zst",
			"crishim save busybox | ssh node2 crishim load"),
		Flags: []urfave.Flag{
			cli.StringFlag(&o.output, "output", "Write to `FILE` instead of stdout", "o"),
			cli.WordFlag(&o.format, []string{string(imagefile.OCI), string(imagefile.Docker)}, "format", "Write the archive in `FORMAT`: oci, docker"),
			o.platforms.flag("Save only images for"),
			cli.BoolFlag(&o.quiet, "quiet", "Do not show progress", "q"),
		},
		Images: true,
		GC:     gogc.Serve, // a copy runs long and produces much garbage
		Check:  o.check,
		RunOn:  o.run,
	}
}

func (o *saveOptions) check(in *cli.Invocation, c *urfave.Context) error {
	if err := cli.ArgCount(c, 1, -1); err != nil {
		return err
	}
	o.images = c.Args().Slice()
	for _, name := range o.images {
		if strings.ContainsAny(name, "*?") {
			return &cli.UsageError{Text: fmt.Sprintf("save takes names and ids, not the pattern %q", name), Next: "`crishim images " + shellwords.Quote(name) + "` lists the images that match"}
		}
	}
	if err := o.platforms.check(); err != nil {
		return err
	}
	return cli.CheckOutput(in.OutTerminal, o.output)
}

func (o *saveOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	refs, err := findImages(ctx, conn, o.images)
	if err != nil {
		return err
	}
	from := openStore(ctx, conn)
	shown := showing(printer, "saving", strings.Join(o.images, ", "), o.quiet)
	defer shown.close()
	return cli.WriteOutput(printer.Out, o.output, func(out io.Writer) error {
		return from.save(ctx, refs, imagefile.Options{Platform: o.platforms.want, Watch: shown.watch}, func(images []imagefile.Image) error {
			return imagefile.Write(out, imagefile.Format(o.format), images)
		})
	})
}

// findImages returns the full name of each image that was given by tag, and the ids of the other images.
func findImages(ctx context.Context, conn *client.Conn, names []string) ([]string, error) {
	var refs []string
	err := cli.Each(names, func(text string) error {
		res, err := cli.ImageStatus(ctx, conn, text, false, true)
		if err != nil {
			return err
		}
		ref := res.GetImage().GetId()
		if tagOf(res.GetImage(), text) != "" {
			if ref, err = imageref.Full(text); err != nil {
				return err
			}
		}
		refs = append(refs, ref)
		return nil
	})
	return refs, err
}

// tagOf returns the tag of an image that name refers to, or "" if name is not a tag.
func tagOf(image *runtimeapi.Image, name string) string {
	want, err := imageref.Full(name)
	if err != nil {
		return ""
	}
	for _, tag := range image.GetRepoTags() {
		if full, err := imageref.Full(tag); err == nil && full == want {
			return tag
		}
	}
	return ""
}
