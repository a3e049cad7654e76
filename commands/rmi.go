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

type rmiOptions struct {
	targets
	prune, force bool
}

// newRmi removes images.
func newRmi(env *Env) *cli.Command {
	o := &rmiOptions{}
	return &cli.Command{
		Name:      "rmi",
		Usage:     "remove images",
		ArgsUsage: "IMAGE...",
		Description: describe("Removes images with all their names. --prune removes those that no container uses and that are not pinned.",
			"crishim rmi busybox", "crishim rmi --prune --dry-run"),
		Flags: []cli.Flag{
			o.allFlag("every image that is not pinned"),
			boolFlag(&o.prune, "prune", "every image that is neither used nor pinned", "q"),
			boolFlag(&o.force, "force", "remove pinned images too"),
			o.dryRunFlag("removed"),
		},
		Action: env.connected(o.check, o.run),
	}
}

func (o *rmiOptions) check(env *Env, c *cli.Context) error {
	switch {
	case o.all && o.prune:
		return usagef("--all and --prune: choose one")
	case o.prune && c.Args().Present():
		return usagef("--prune takes no arguments, got %s", quote(c.Args().First()))
	}
	o.all = o.all || o.prune
	return o.targets.check(env, c)
}

func (o *rmiOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	images, err := o.images(ctx, conn)
	names := func(i imageTarget) []string {
		if tags := i.thing.GetRepoTags(); len(tags) > 0 {
			return tags
		}
		return []string{i.ref}
	}
	return batch[*runtimeapi.Image]{
		what: "image", doing: "removing",
		would: func(i imageTarget) string { return "Would delete: " + strings.Join(names(i), ", ") },
		skip: func(_ *Env, i imageTarget) (bool, error) {
			if o.force || !i.thing.GetPinned() {
				return false, nil
			}
			return true, withHint(fmt.Errorf("image %s is pinned: the runtime needs it", quote(i.ref)), "crishim rmi --force %s removes it all the same", i.ref)
		},
		do: func(env *Env, i imageTarget) error {
			names := names(i)
			if len(names) > 1 && !o.all { // then it has been announced
				env.warn("image %s has %d names, all go: %s", quote(i.ref), len(names), strings.Join(names, ", "))
			}
			_, err := conn.Image.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: i.thing.GetId()}})
			if err != nil {
				return err
			}
			return each(names, func(name string) error { return env.say("Deleted: %s", name) })
		},
	}.run(env, &o.targets, images, err)
}

// images are what arguments name, or --all and --prune choose.
func (o *rmiOptions) images(ctx context.Context, conn *client.Conn) (images []imageTarget, err error) {
	if !o.all {
		err = each(o.refs, func(ref string) error {
			res, err := imageStatus(ctx, conn, ref, false)
			if err != nil && res == nil {
				err = about(ref, err)
			}
			if err != nil {
				return err
			}
			images = append(images, imageTarget{ref: ref, thing: res.GetImage()})
			return nil
		})
		return images, err
	}
	res, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	used := map[string]bool{} // all names under which containers refer to their images
	if o.prune {
		res, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err != nil {
			return nil, err
		}
		for _, c := range res.GetContainers() {
			for _, name := range []string{c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage()} {
				used[name] = name != ""
			}
		}
	}
	for _, image := range res.GetImages() {
		names := slices.Concat([]string{image.GetId()}, image.GetRepoTags(), image.GetRepoDigests())
		if image.GetPinned() && !o.force || slices.ContainsFunc(names, func(name string) bool { return used[name] }) {
			continue
		}
		images = append(images, imageTarget{imageName(image), image, strings.Join(image.GetRepoTags(), ", ")})
	}
	return images, nil
}
