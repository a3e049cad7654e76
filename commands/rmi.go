package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// newRmi removes images.
func newRmi(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "rmi",
		Usage:     "remove images",
		ArgsUsage: "IMAGE...",
		Description: describe("Removes images with all their names. --prune removes those that no container uses and that are not pinned.",
			"crishim rmi busybox", "crishim rmi --prune --dry-run"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "every image that is not pinned"},
			&cli.BoolFlag{Name: "prune", Aliases: []string{"q"}, Usage: "every image that is neither used nor pinned"},
			&cli.BoolFlag{Name: "force", Usage: "remove pinned images too"},
			&cli.BoolFlag{Name: "dry-run", Usage: "say what would be removed"},
		},
		Action: action(env, rmiOptionsOf, runRmi),
	}
}

type rmiOptions struct {
	refs                      []string
	all, prune, force, dryRun bool
}

func rmiOptionsOf(_ *Env, c *cli.Context) (rmiOptions, error) {
	o := rmiOptions{refs: c.Args().Slice(), all: c.Bool("all"), prune: c.Bool("prune"), force: c.Bool("force"), dryRun: c.Bool("dry-run")}
	switch {
	case o.all && o.prune:
		return o, usagef("--all and --prune: choose one")
	case (o.all || o.prune) && len(o.refs) > 0:
		return o, usagef("--all and --prune take no arguments, got %s", quote(o.refs[0]))
	case o.all || o.prune:
		return o, nil
	}
	return o, argCount(c, 1, -1)
}

func runRmi(ctx context.Context, env *Env, o rmiOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	images, failed := o.images(ctx, conn)
	if (o.all || o.prune) && !o.dryRun && failed == nil {
		announce(env, "removing", "image", images)
	}
	return join(failed, inParallel(env, images, func(env *Env, i target[*runtimeapi.Image]) error {
		return removeImage(ctx, env, conn, o, i)
	}))
}

// images are what arguments name, or --all and --prune choose.
func (o rmiOptions) images(ctx context.Context, conn *client.Conn) (images []target[*runtimeapi.Image], err error) {
	if !o.all && !o.prune {
		err = each(o.refs, func(ref string) error {
			res, err := conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
			switch {
			case err != nil:
				return about(ref, err)
			case res.GetImage() == nil:
				return noSuchImage(ref)
			}
			images = append(images, target[*runtimeapi.Image]{ref: ref, thing: res.GetImage()})
			return nil
		})
		return images, err
	}
	res, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	if o.prune {
		if used, err = usedImages(ctx, conn); err != nil {
			return nil, err
		}
	}
	for _, image := range res.GetImages() {
		if (image.GetPinned() && !o.force) || isUsed(image, used) {
			continue
		}
		images = append(images, target[*runtimeapi.Image]{imageName(image), image, imageTitle(image)})
	}
	return images, nil
}

// imageTitle is all that an image is called.
func imageTitle(image *runtimeapi.Image) string {
	if len(image.GetRepoTags()) > 0 {
		return strings.Join(image.GetRepoTags(), ", ")
	}
	return imageName(image)
}

// usedImages are all names under which containers refer to their images.
func usedImages(ctx context.Context, conn *client.Conn) (map[string]bool, error) {
	res, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, c := range res.GetContainers() {
		for _, name := range []string{c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage()} {
			used[name] = name != ""
		}
	}
	return used, nil
}

func isUsed(image *runtimeapi.Image, used map[string]bool) bool {
	return used[image.GetId()] || slices.ContainsFunc(slices.Concat(image.GetRepoTags(), image.GetRepoDigests()), func(name string) bool { return used[name] })
}

func removeImage(ctx context.Context, env *Env, conn *client.Conn, o rmiOptions, i target[*runtimeapi.Image]) error {
	names := slices.Clone(i.thing.GetRepoTags())
	if len(names) == 0 {
		names = []string{i.ref}
	}
	switch {
	case i.thing.GetPinned() && !o.force:
		return withHint(fmt.Errorf("image %s is pinned: the runtime needs it", quote(i.ref)), "crishim rmi --force %s removes it all the same", i.ref)
	case o.dryRun:
		return env.say("Would delete: %s", strings.Join(names, ", "))
	case len(names) > 1 && !o.all && !o.prune: // then it has been said
		env.warn("image %s has %d names, all go: %s", quote(i.ref), len(names), strings.Join(names, ", "))
	}
	_, err := conn.Image.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: i.thing.GetId()}})
	if err != nil {
		return about(i.ref, err)
	}
	for _, name := range names {
		if err := env.say("Deleted: %s", name); err != nil {
			return err
		}
	}
	return nil
}
