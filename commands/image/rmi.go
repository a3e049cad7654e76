package image

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/disk"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime"
)

type rmiOptions struct {
	cli.Targets
	prune, force bool
	filter       cli.ImageFilter
	until        time.Duration
}

func NewRmi(in *cli.Invocation) *cli.Verb {
	o := &rmiOptions{}
	return &cli.Verb{
		Usage:     "Remove images",
		ArgsUsage: "IMAGE...",
		Args:      cli.CompleteImages,
		Description: cli.WithExamples("Removes images with all their names. --prune removes images that are neither pinned nor used by a container, running or not.\n"+
			"Prints the freed space: layers shared with other images do not count; if the runtime does not report shared layers, it is an upper limit.\n"+
			"--filter takes label=KEY[=VALUE], label!=KEY[=VALUE], dangling=true|false, reference=REGEX, before=IMAGE or since=IMAGE.",
			"crishim rmi busybox", "crishim rmi --prune --dry-run", "crishim rmi --prune --filter dangling=true"),
		Flags: []urfave.Flag{
			o.AllFlag("Remove all images that are not pinned"),
			cli.BoolFlag(&o.prune, "prune", "Remove all images that are neither used nor pinned", "q"),
			cli.DurationFlag(&o.until, "until", "With --prune: remove only images that were pulled or loaded more than `DURATION` ago, such as 168h"),
			o.filter.PruneFlag(),
			cli.BoolFlag(&o.force, "force", "Remove pinned images, too", "f"),
			o.DryRunFlag("removed"),
		},
		Images: true,
		Check:  o.check,
		RunOn:  o.run,
	}
}

func (o *rmiOptions) check(in *cli.Invocation, c *urfave.Context) error {
	switch {
	case o.All && o.prune:
		return cli.Usagef("--all and --prune: choose one")
	case o.prune && c.Args().Present():
		return cli.Usagef("--prune takes no arguments, got %s", cli.Quote(c.Args().First()))
	case !o.prune && (o.until != 0 || o.filter.Given()):
		return cli.Usagef("--until and --filter need --prune")
	case o.until < 0:
		return cli.Invalid("until", o.until.String(), "must not be negative")
	}
	o.force = o.force || in.Compat && !o.prune // crictl removes pinned images, too
	o.All = o.All || o.prune
	return o.Targets.Check(in, c)
}

func (o *rmiOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	chosen, err := o.images(ctx, printer, conn)
	if err != nil && o.All {
		return err
	}
	names := func(i cli.ImageTarget) []string {
		if tags := i.Object.GetRepoTags(); len(tags) > 0 {
			return tags
		}
		return []string{i.Ref}
	}
	var mu sync.Mutex // guards gone
	var gone []string
	note := func(i cli.ImageTarget) {
		mu.Lock()
		defer mu.Unlock()
		gone = append(gone, i.Object.GetId())
	}
	err = cli.Batch[*runtimeapi.Image]{
		What: "image", Doing: "removing",
		Would: func(i cli.ImageTarget) string {
			note(i)
			return "Would delete: " + strings.Join(names(i), ", ")
		},
		Skip: func(_ *cli.Printer, i cli.ImageTarget) (bool, error) {
			if o.force || !i.Object.GetPinned() {
				return false, nil
			}
			return true, cli.WithHint(fmt.Errorf("image %s is pinned: the runtime needs it", cli.Quote(i.Ref)), "`crishim rmi --force %s` removes it anyway", shellwords.Quote(i.Ref))
		},
		Do: func(printer *cli.Printer, i cli.ImageTarget) error {
			if o.prune {
				unused, err := chosen.use.StillUnused(ctx, i.Object)
				if err != nil {
					return err
				}
				if !unused {
					printer.Note("image %s is in use by now, and stays", cli.Quote(i.Ref))
					return nil
				}
			}
			names := names(i)
			if len(names) > 1 && !o.All { // Batch has already printed all names of the images of --all and --prune
				printer.Warn("image %s has %d names, all go: %s", cli.Quote(i.Ref), len(names), strings.Join(names, ", "))
			}
			_, err := conn.Image.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: i.Object.GetId()}})
			if err != nil {
				return err
			}
			note(i)
			return cli.Each(names, func(name string) error { return printer.Say("Deleted: %s", name) })
		},
	}.Run(printer, &o.Targets, chosen.images, err)
	if !o.All || printer.Compat {
		return err
	}
	freed := "Freed"
	if o.DryRun(printer) {
		freed = "Would free"
	}
	return cli.Join(err, printer.Say("%s: %s", freed, chosen.usage.Freed(gone...)))
}

// chosenImages are the images to remove.
type chosenImages struct {
	images []cli.ImageTarget
	use    *kuberuntime.ImageUse // images that containers, image volumes or sandboxes use; nil without --prune
	usage  *disk.Images
}

func (o *rmiOptions) images(ctx context.Context, printer *cli.Printer, conn *client.Conn) (chosen chosenImages, err error) {
	if !o.All {
		err = cli.Each(o.Refs, func(ref string) error {
			res, err := cli.ImageStatus(ctx, conn, ref, false, false)
			switch {
			case err == nil:
				chosen.images = append(chosen.images, cli.ImageTarget{Ref: ref, Object: res.GetImage()})
			case res == nil:
				err = cli.About(ref, err)
			}
			return err
		})
		return chosen, err
	}
	res, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return chosen, err
	}
	if chosen.usage, err = disk.ReadImages(ctx, conn, res.GetImages(), o.until > 0); err != nil {
		return chosen, err
	}
	if o.prune {
		if chosen.use, err = kuberuntime.ImagesInUse(ctx, conn.Runtime, conn.Image); err != nil {
			return chosen, err
		}
	}
	all, err := o.filter.Choose(res.GetImages())
	if err != nil {
		return chosen, err
	}
	var images []*runtimeapi.Image
	for _, image := range all {
		if image.GetPinned() && !o.force || o.prune && (chosen.use.Has(image) || chosen.usage.Used(image.GetId())) {
			continue
		}
		if o.until > 0 {
			came, known := chosen.usage.Came(image.GetId())
			if !known {
				return chosen, fmt.Errorf("--until: %s does not tell when an image came", cmp.Or(conn.Version.GetRuntimeName(), conn.ImageEndpoint))
			}
			if printer.Now().Sub(came) < o.until {
				continue
			}
		}
		images = append(images, image)
	}
	if images, err = o.filter.ByLabel(ctx, conn, images); err != nil {
		return chosen, err
	}
	for _, image := range images {
		chosen.images = append(chosen.images, cli.ImageTarget{Ref: cli.ImageName(image), Object: image, Title: strings.Join(image.GetRepoTags(), ", ")})
	}
	return chosen, nil
}
