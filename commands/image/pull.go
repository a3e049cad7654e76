package image

import (
	"context"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/progress"
)

type pullOptions struct {
	cli.PullOptions
	images      []string
	podFile     string
	pod         *runtimeapi.PodSandboxConfig
	annotations map[string]string
	quiet       bool
}

func NewPull(in *cli.Invocation) *cli.Verb {
	o := &pullOptions{}
	return &cli.Verb{
		Usage:     "Pull images from a registry",
		ArgsUsage: "IMAGE...",
		Args:      cli.CompleteImages,
		Description: cli.WithExamples("Takes credentials from the flags, else from DOCKER_AUTH_CONFIG, else from the login files of docker or podman.\n"+
			"Pulls several images at the same time. Progress goes to stderr.",
			"crishim pull busybox", "crishim pull --if-missing busybox alpine:3", "crishim pull --username me --password-stdin registry.example.com/app:v1"),
		Subcommands: []cli.Entry{cli.NewSchema("pull", "pod")},
		Flags: append(o.Flags(),
			cli.StringFlag(&o.podFile, "pod-config", "Pull for the pod that `FILE` configures"),
			cli.LabelsFlag(&o.annotations, "annotation", "Set the annotation `KEY=VALUE` on the image", "a"),
			cli.BoolFlag(&o.IfMissing, "if-missing", "Skip images that are present"),
			cli.IntFlag(&o.Retries, "retries", "Retry `N` times when the registry cannot be reached"),
			cli.BoolFlag(&o.quiet, "quiet", "Print only the image reference", "q"),
		),
		Images: true,
		Check:  o.check,
		RunOn:  o.run,
	}
}

func (o *pullOptions) check(in *cli.Invocation, c *urfave.Context) (err error) {
	if err = cli.ArgCount(c, 1, -1); err != nil {
		return err
	}
	o.images = c.Args().Slice()
	for _, image := range o.images {
		if err := ownName(image); err != nil {
			return cli.Usagef("%v", err)
		}
	}
	if o.Retries < 0 {
		return cli.Invalid("retries", o.Retries, "must not be negative")
	}
	if err = o.PullOptions.Check(in, c); err != nil {
		return err
	}
	o.Progress = !o.quiet && !in.Compat
	if o.podFile != "" {
		o.pod, err = cli.ReadPodFile(in.In, o.podFile)
	}
	return err
}

func (o *pullOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	if printer.DryRun() {
		for _, image := range o.images {
			if err := printer.Say("Would pull %s", image); err != nil {
				return err
			}
		}
		return nil
	}
	o = new(*o) // a copy, because several nodes run at once and share o
	if o.Progress {
		o.Display = progress.Start(printer.Progress())
		defer o.Display.Close()
		printer = printer.To(o.Display.Around(printer.Out), o.Display.Around(printer.Err))
	}
	return cli.InParallel(printer, o.images, cli.MaxConcurrent, func(printer *cli.Printer, image string) error {
		spec := &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: image, Annotations: o.annotations}
		ref, err := o.Pull(ctx, printer, conn, spec, o.pod)
		switch {
		case err != nil:
			return err
		case o.quiet:
			return printer.Say("%s", ref)
		}
		return printer.Say("Image is up to date for %s", ref)
	})
}
