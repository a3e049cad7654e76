package image

import (
	"context"
	"os"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/imagefile"
)

type loadOptions struct {
	input     string // "" or "-": standard input
	as        string
	platforms platformFlag
	quiet     bool
}

// NewLoad returns the verb that loads images from an archive.
func NewLoad(env *cli.Env) *urfave.Command {
	o := &loadOptions{}
	return &urfave.Command{
		Name:      "load",
		Usage:     "load images from a tar archive",
		ArgsUsage: " ",
		Description: cli.WithExamples("Takes OCI layouts and docker's archives, plain or compressed by gzip or zstd. Everything in the archive is checked first, and nothing is\n"+
			"loaded of one with a fault. A kubelet sees the images at once. A runtime that is neither Docker nor containerd\n"+
			"pulls them from a registry on loopback, and knows them by its address.",
			"crishim load -i busybox.tar", "zcat images.tar.gz | crishim load", "crishim load -i layout.tar --as example.com/app:v1"),
		Flags: []urfave.Flag{
			cli.StringFlag(&o.input, "input", "read from `FILE` instead of standard input", "i"),
			cli.StringFlag(&o.as, "as", "`NAME` of the image in place of the archive's"),
			o.platforms.flag("load only what is for"),
			cli.BoolFlag(&o.quiet, "quiet", "print the images' ids only", "q"),
		},
		Action: env.ForImages(env.Connected(o.check, o.run)),
	}
}

func (o *loadOptions) check(env *cli.Env, c *urfave.Context) error {
	if c.Args().Present() && o.input == "" {
		return cli.WithHint(cli.Usagef("load takes no arguments, got %s", cli.Quote(c.Args().First())), "`crishim load -i %s`", c.Args().First())
	}
	if err := cli.ArgCount(c, 0, 0); err != nil {
		return err
	}
	if o.as != "" {
		name, err := imagefile.Name(o.as)
		if err != nil {
			return cli.Invalid("as", o.as, err.Error())
		}
		o.as = name
	}
	if (o.input == "" || o.input == "-") && env.InTerminal {
		return cli.Usagef("no archive on a terminal: use -i FILE, or redirect standard input")
	}
	return o.platforms.check()
}

func (o *loadOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	in, name := env.In, "standard input"
	if o.input != "" && o.input != "-" {
		f, err := os.Open(o.input)
		if err != nil {
			return err
		}
		defer f.Close()
		in, name = f, o.input
	}
	to := openStore(ctx, conn)
	shown := showing(env, "loading", name, o.quiet)
	defer shown.close()
	images, err := to.load(ctx, func(sink imagefile.Sink) ([]imagefile.Image, error) {
		images, err := imagefile.Read(ctx, in, imagefile.ReadOptions{Platform: o.platforms.want, As: o.as}, shown.sink(sink))
		if err != nil {
			err = cli.About(name, err)
		}
		return images, err
	})
	shown.close()
	if err != nil {
		return err
	}
	return o.print(env, images)
}

// print is docker's, with the digest behind it.
func (o *loadOptions) print(env *cli.Env, images []imagefile.Image) error {
	for _, image := range images {
		say := sayLoaded
		if o.quiet {
			say = func(env *cli.Env, image imagefile.Image) error { return env.Say("%s", image.ID()) }
		}
		if err := say(env, image); err != nil {
			return err
		}
	}
	return nil
}

func sayLoaded(env *cli.Env, image imagefile.Image) error {
	if len(image.Names) == 0 {
		if err := env.Say("Loaded image ID: %s", image.ID()); err != nil {
			return err
		}
		env.Note("the archive has no name for %s: `crishim load --as NAME` gives it one", image.ID())
		return nil
	}
	return cli.Each(image.Names, func(name string) error {
		return env.Say("Loaded image: %s (%s)", imagefile.Familiar(name), image.Target.Digest)
	})
}
