package image

import (
	"context"
	"fmt"
	"strings"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/kuberuntime"
)

type rmiOptions struct {
	cli.Targets
	prune, force bool
}

func NewRmi(env *cli.Env) *urfave.Command {
	o := &rmiOptions{}
	return &urfave.Command{
		Name:      "rmi",
		Usage:     "remove images",
		ArgsUsage: "IMAGE...",
		Description: cli.WithExamples("Removes images with all their names. --prune removes those that are neither used nor pinned.",
			"crishim rmi busybox", "crishim rmi --prune --dry-run"),
		Flags: []urfave.Flag{
			o.AllFlag("remove all images that are not pinned"),
			cli.BoolFlag(&o.prune, "prune", "remove all images that are neither used nor pinned", "q"),
			cli.BoolFlag(&o.force, "force", "remove pinned images too"),
			o.DryRunFlag("removed"),
		},
		Action: env.ForImages(env.Connected(o.check, o.run)),
	}
}

func (o *rmiOptions) check(env *cli.Env, c *urfave.Context) error {
	switch {
	case o.All && o.prune:
		return cli.Usagef("--all and --prune: choose one")
	case o.prune && c.Args().Present():
		return cli.Usagef("--prune takes no arguments, got %s", cli.Quote(c.Args().First()))
	}
	o.All = o.All || o.prune
	return o.Targets.Check(env, c)
}

func (o *rmiOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	images, err := o.images(ctx, conn)
	names := func(i cli.ImageTarget) []string {
		if tags := i.Object.GetRepoTags(); len(tags) > 0 {
			return tags
		}
		return []string{i.Ref}
	}
	return cli.Batch[*runtimeapi.Image]{
		What: "image", Doing: "removing",
		Would: func(i cli.ImageTarget) string { return "Would delete: " + strings.Join(names(i), ", ") },
		Skip: func(_ *cli.Env, i cli.ImageTarget) (bool, error) {
			if o.force || !i.Object.GetPinned() {
				return false, nil
			}
			return true, cli.WithHint(fmt.Errorf("image %s is pinned: the runtime needs it", cli.Quote(i.Ref)), "`crishim rmi --force %s` removes it anyway", i.Ref)
		},
		Do: func(env *cli.Env, i cli.ImageTarget) error {
			names := names(i)
			if len(names) > 1 && !o.All { // --all and --prune have announced it
				env.Warn("image %s has %d names, all go: %s", cli.Quote(i.Ref), len(names), strings.Join(names, ", "))
			}
			_, err := conn.Image.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: i.Object.GetId()}})
			if err != nil {
				return err
			}
			return cli.Each(names, func(name string) error { return env.Say("Deleted: %s", name) })
		},
	}.Run(env, &o.Targets, images, err)
}

// images returns the images that arguments name, or --all and --prune choose.
func (o *rmiOptions) images(ctx context.Context, conn *client.Conn) (images []cli.ImageTarget, err error) {
	if !o.All {
		err = cli.Each(o.Refs, func(ref string) error {
			res, err := cli.ImageStatus(ctx, conn, ref, false, false)
			if err != nil && res == nil {
				err = cli.About(ref, err)
			}
			if err != nil {
				return err
			}
			images = append(images, cli.ImageTarget{Ref: ref, Object: res.GetImage()})
			return nil
		})
		return images, err
	}
	res, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	var used kuberuntime.UsedImages
	if o.prune {
		if used, err = kuberuntime.ImagesInUse(ctx, conn.Runtime, conn.Image); err != nil {
			return nil, err
		}
	}
	for _, image := range res.GetImages() {
		if image.GetPinned() && !o.force || used.Has(image) {
			continue
		}
		images = append(images, cli.ImageTarget{Ref: cli.ImageName(image), Object: image, Title: strings.Join(image.GetRepoTags(), ", ")})
	}
	return images, nil
}
