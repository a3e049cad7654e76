package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/progress"
)

type pullVerbOptions struct {
	pullOptions
	images      []string
	podFile     string
	pod         *runtimeapi.PodSandboxConfig
	annotations map[string]string
	quiet       bool
}

// newPull gets images from their registries.
func newPull(env *Env) *cli.Command {
	o := &pullVerbOptions{}
	return &cli.Command{
		Name:      "pull",
		Usage:     "pull images",
		ArgsUsage: "IMAGE...",
		Description: describe("Credentials come from the flags, else from docker's or podman's login files. Several images are pulled at the same time. How far\n"+
			"it is goes to standard error.",
			"crishim pull busybox", "crishim pull --if-missing busybox alpine:3", "crishim pull --username me --password-stdin registry.example.com/app:v1"),
		Subcommands: []*cli.Command{newSchema(env, "pull", "pod")},
		Flags: append(o.flags(),
			stringFlag(&o.podFile, "pod-config", "pull it for the pod that `FILE` describes"),
			labelsFlag(&o.annotations, "annotation", "send the annotation `KEY=VALUE` with the image", "a"),
			boolFlag(&o.ifMissing, "if-missing", "skip images that are present"),
			intFlag(&o.retries, "retries", "retry `N` times when the registry cannot be reached"),
			boolFlag(&o.quiet, "quiet", "print the image's reference only", "q"),
		),
		Action: env.connected(o.check, o.run),
	}
}

func (o *pullVerbOptions) check(env *Env, c *cli.Context) (err error) {
	if err = argCount(c, 1, -1); err != nil {
		return err
	}
	o.images = c.Args().Slice()
	if o.retries < 0 {
		return invalid("retries", o.retries, "must not be negative")
	}
	if err = o.pullOptions.check(env, c); err != nil {
		return err
	}
	o.progress = !o.quiet && !env.compat
	if o.podFile != "" {
		o.pod, err = env.readPodFile(o.podFile)
	}
	return err
}

func (o *pullVerbOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	if o.progress {
		o.display = progress.Start(env.progressOptions())
		defer o.display.Close()
		around := *env
		around.Out, around.Err = o.display.Around(env.Out), o.display.Around(env.Err)
		env = &around
	}
	return inParallel(env, o.images, atOnce, func(env *Env, image string) error {
		spec := &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: image, Annotations: o.annotations}
		ref, err := o.pull(ctx, env, conn, spec, o.pod)
		switch {
		case err != nil:
			return err
		case o.quiet:
			return env.say("%s", ref)
		}
		return env.say("Image is up to date for %s", ref)
	})
}
