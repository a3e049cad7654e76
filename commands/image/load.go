package image

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	urfave "github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/gogc"
	"github.com/crishim/crishim/internal/imagefile"
	"github.com/crishim/crishim/internal/imageref"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime"
)

type loadOptions struct {
	input     string // "" or "-": standard input
	as        string
	platforms platformFlag
	force     bool
	quiet     bool
	stdin     io.Reader
}

func NewLoad(in *cli.Invocation) *cli.Verb {
	o := &loadOptions{stdin: in.In}
	return &cli.Verb{
		Usage: "Load images from a tar archive",
		Description: cli.WithExamples("Loads OCI layouts and archives of docker save, plain or compressed with gzip or zstd. The whole archive is checked\n"+
			"before anything is loaded. Input that is not a plain file is stored in TMPDIR or /var/tmp meanwhile. A kubelet sees the images\n"+
			"at once. On containerd, an image for another platform than the node's is refused unless --platform asks for it. Runtimes other than\n"+
			"Docker and containerd pull the images from a registry that crishim serves on loopback, and name them by its address.",
			"crishim load -i busybox.tar", "zcat images.tar.gz | crishim load", "crishim load -i layout.tar --as example.com/app:v1"),
		Flags: []urfave.Flag{
			cli.StringFlag(&o.input, "input", "Read from `FILE` instead of stdin", "i"),
			cli.StringFlag(&o.as, "as", "Name the image `NAME` instead of its name in the archive"),
			o.platforms.flag("Load only images for"),
			cli.BoolFlag(&o.force, "force", "Replace even images that the runtime needs, except crishim's own", "f"),
			cli.BoolFlag(&o.quiet, "quiet", "Print only image IDs", "q"),
		},
		Images: true,
		GC:     gogc.Serve, // a copy runs long and produces much garbage
		Check:  o.check,
		RunOn:  o.run,
	}
}

func (o *loadOptions) check(in *cli.Invocation, c *urfave.Context) error {
	if c.Args().Present() && o.input == "" {
		return cli.WithHint(cli.Usagef("load takes no arguments, got %s", cli.Quote(c.Args().First())), "`crishim load -i %s`", shellwords.Quote(c.Args().First()))
	}
	if err := cli.ArgCount(c, 0, 0); err != nil {
		return err
	}
	if o.as != "" {
		name, err := imageref.Full(o.as)
		if err != nil {
			return cli.Invalid("as", o.as, err.Error())
		}
		if err := ownName(name); err != nil {
			return cli.Usagef("%v", err)
		}
		o.as = name
	}
	if (o.input == "" || o.input == "-") && in.InTerminal {
		return cli.Usagef("standard input is a terminal: use -i FILE, or redirect it")
	}
	return o.platforms.check()
}

func (o *loadOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	images, err := o.load(ctx, printer, conn)
	if err != nil {
		return err
	}
	for _, image := range images {
		switch {
		case o.quiet:
			err = printer.Say("%s", image.ID())
		case len(image.Names) == 0:
			err = printer.Say("Loaded image ID: %s", image.ID())
			printer.Note("the archive has no name for %s: `crishim load --as NAME` gives it one", image.ID())
		default: // docker's line, with the id added
			err = cli.Each(image.Names, func(name string) error {
				return printer.Say("Loaded image: %s (%s)", imageref.Familiar(name), image.ID())
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *loadOptions) load(ctx context.Context, printer *cli.Printer, conn *client.Conn) ([]imagefile.Image, error) {
	in, name := o.stdin, "standard input"
	if o.input != "" && o.input != "-" {
		f, err := os.Open(o.input)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in, name = f, o.input
	}
	to := openStore(ctx, conn)
	shown := showing(printer, "loading", name, o.quiet)
	defer shown.close()
	archive, err := imagefile.Open(ctx, in, imagefile.Options{Platform: o.platforms.want, As: o.as, Watch: shown.watch})
	if err != nil {
		return nil, cli.About(name, err)
	}
	defer archive.Close()
	if err := o.refuse(ctx, conn, to, archive.Images); err != nil {
		return nil, cli.About(name, err)
	}
	return to.load(ctx, archive.Images)
}

// refuse returns an error for an image that is for another platform than containerd's, because CRI would not list it;
// --platform permits it. refuse also returns an error for a name that the runtime has for another image, if that image
// is pinned or is the sandbox image, because the runtime needs it; --force permits it. refuse always returns an error
// for the names of crishim's own images.
func (o *loadOptions) refuse(ctx context.Context, conn *client.Conn, to store, images []imagefile.Image) error {
	var own []v1.Platform // nil: any
	if s, ok := to.(containerdStore); ok {
		own = s.store.Platforms(ctx)
	}
	sandbox := ""
	if !o.force {
		var err error
		sandbox, err = kuberuntime.SandboxImage(ctx, conn.Runtime)
		// An endpoint with only the image service has no sandbox image.
		if code := status.Code(err); err != nil && code != codes.Unimplemented && code != codes.Unavailable {
			return err
		}
	}
	for _, image := range images {
		title := image.ID()
		if len(image.Names) > 0 {
			title = imageref.Familiar(image.Names[0])
		}
		if !image.RunsOn(own) && o.platforms.want == nil {
			has := image.Best().Platform
			return cli.WithHint(fmt.Errorf("%s is for %s, and the runtime's platform is %s", title, has, own[0]), "`--platform %s` stores it nevertheless", shellwords.Quote(fmt.Sprint(has)))
		}
		if err := cli.Each(image.Names, func(name string) error {
			if err := ownName(name); err != nil {
				return err
			}
			if o.force {
				return nil
			}
			res, err := conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
			if there := res.GetImage(); there.GetId() != "" && there.GetId() != image.ID() && (there.GetPinned() || name == sandbox) {
				return cli.WithHint(fmt.Errorf("%s is an image that the runtime needs", imageref.Familiar(name)), "`--force` replaces it")
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// ownName refuses the names of the shim's own images, which run in every pod.
func ownName(name string) error {
	if strings.HasPrefix(name, kube.OwnImages) {
		return fmt.Errorf("%s: names under crishim.local/ are crishim's own", name)
	}
	return nil
}
