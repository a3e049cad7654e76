package commands

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/progress"
)

// newPull gets images from their registries.
func newPull(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "pull",
		Usage:     "pull images",
		ArgsUsage: "IMAGE...",
		Description: describe("Credentials come from the flags, else from docker's or podman's login files. Several images are pulled at the same time. How far\n"+
			"it is goes to standard error.",
			"crishim pull busybox", "crishim pull --if-missing busybox alpine:3", "crishim pull --username me --password-stdin registry.example.com/app:v1"),
		Subcommands: []*cli.Command{newSchema(env, "pull", "pod")},
		Flags: append(pullFlags(),
			&cli.StringFlag{Name: "pod-config", Usage: "pull it for the pod that `FILE` describes"},
			&cli.StringSliceFlag{Name: "annotation", Aliases: []string{"a"}, Usage: "send the annotation `KEY=VALUE` with the image"},
			&cli.BoolFlag{Name: "if-missing", Usage: "leave an image that is there alone"},
			&cli.IntFlag{Name: "retries", Usage: "try `N` times more when the registry cannot be reached"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print the image's reference only"},
		),
		Action: action(env, pullVerbOptionsOf, runPull),
	}
}

type pullVerbOptions struct {
	pullOptions
	images      []string
	pod         *runtimeapi.PodSandboxConfig
	annotations map[string]string
	quiet       bool
}

func pullVerbOptionsOf(env *Env, c *cli.Context) (o pullVerbOptions, err error) {
	if err = argCount(c, 1, -1); err != nil {
		return o, err
	}
	o.images, o.quiet = c.Args().Slice(), c.Bool("quiet")
	if o.pullOptions, err = readPullFlags(env, c); err != nil {
		return o, err
	}
	o.ifMissing, o.retries = c.Bool("if-missing"), c.Int("retries")
	o.progress = !o.quiet && !env.compat
	if o.retries < 0 {
		return o, usagef("--retries %d: want a number that is not negative", o.retries)
	}
	if o.annotations, err = readLabels(c, "annotation"); err != nil {
		return o, err
	}
	if file := c.String("pod-config"); file != "" {
		o.pod, err = env.readPodFile(file)
	}
	return o, err
}

func runPull(ctx context.Context, env *Env, o pullVerbOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if o.progress {
		o.display = progress.Start(env.progressOptions())
		defer o.display.Close()
		around := *env
		around.Out, around.Err = o.display.Around(env.Out), o.display.Around(env.Err)
		env = &around
	}
	return inParallel(env, o.images, func(env *Env, image string) error {
		spec := &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: image, Annotations: o.annotations}
		ref, err := pullImage(ctx, env, conn, o.pullOptions, spec, o.pod)
		switch {
		case err != nil:
			return err
		case o.quiet:
			return env.say("%s", ref)
		}
		return env.say("Image is up to date for %s", ref)
	})
}

// pullImage pulls one image and returns the reference that the runtime gives.
func pullImage(ctx context.Context, env *Env, conn *client.Conn, o pullOptions, spec *runtimeapi.ImageSpec, pod *runtimeapi.PodSandboxConfig) (string, error) {
	if o.ifMissing {
		res, err := conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
		if err == nil && res.GetImage() != nil {
			return res.GetImage().GetId(), nil
		}
	}
	auth, err := o.authFor(ctx, env, spec.GetImage())
	if err != nil {
		return "", err
	}
	if o.timeout > 0 {
		ctx = client.WithTimeout(ctx, o.timeout, "--pull-timeout")
	}
	for attempt := 0; ; attempt++ {
		ref, err := pullOnce(ctx, env, conn, o, &runtimeapi.PullImageRequest{Image: spec, Auth: auth, SandboxConfig: pod})
		if err == nil {
			return ref, nil
		}
		if attempt >= o.retries || ctx.Err() != nil || isGone(err) {
			return "", about("pull "+spec.GetImage(), withLoginHint(withoutOperation(err, "pull image: "), auth))
		}
		env.warn("pull %s: %v; trying again", spec.GetImage(), sentence(env, err))
		if err := pause(ctx, time.Second<<min(attempt, 4)); err != nil {
			return "", err
		}
	}
}

// withLoginHint says what to do when the registry refuses the login that was sent, or wants
// one.
func withLoginHint(err error, auth *runtimeapi.AuthConfig) error {
	switch {
	case !client.IsRefused(err):
		return err
	case auth == nil:
		return withHint(err, "if the image is private, log in with `docker login`, or give --creds or --authfile")
	}
	return withHint(err, "are user and password right, and may this user read the image? `docker login`, --creds and --authfile give others")
}

// pullFor pulls what a container needs: its image and the images among its
// mounts.
func pullFor(ctx context.Context, env *Env, conn *client.Conn, o pullOptions, container *runtimeapi.ContainerConfig, pod *runtimeapi.PodSandboxConfig) error {
	images := []*runtimeapi.ImageSpec{container.GetImage()}
	for _, mount := range container.GetMounts() {
		if mount.GetImage().GetImage() != "" {
			images = append(images, mount.GetImage())
		}
	}
	for _, image := range images {
		if _, err := pullImage(ctx, env, conn, o, image, pod); err != nil {
			return err
		}
	}
	return nil
}

// worded replaces an error's text and keeps the error.
type worded struct {
	error
	text string
}

func (e *worded) Error() string { return e.text }

func (e *worded) Unwrap() error { return e.error }

// withoutOperation drops what the layer above says better.
func withoutOperation(err error, prefix string) error {
	var named *client.Error
	if errors.As(err, &named) && strings.HasPrefix(named.Error(), prefix) {
		return &worded{err, strings.TrimPrefix(named.Error(), prefix)}
	}
	return err
}
