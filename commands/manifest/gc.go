package manifest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/disk"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type gcOptions struct {
	policy           kuberuntime.GCPolicy
	images           kuberuntime.ImagePolicy
	dryRun, deadPods bool
}

func NewGC(in *cli.Invocation) *cli.Verb {
	o := &gcOptions{policy: kuberuntime.DefaultGCPolicy(), images: kuberuntime.DefaultImagePolicy()}
	return &cli.Verb{
		Usage: "Remove dead containers and sandboxes, leftover directories and unused images",
		Description: cli.WithExamples("Follows the kubelet's policies. Running containers stay, and so does the last attempt of each container of an existing pod. "+
			"Images are removed only when disk usage reaches --image-high; crishim rmi --prune removes all unused images. Log directories are removed with the pods of apply and sync; rmp removes the logs of other pods, such as pods of runp.",
			"crishim gc --dry-run", "crishim gc --dead-pods --max-per-container 0"),
		Flags: append([]urfave.Flag{
			cli.BoolFlag(&o.dryRun, "dry-run", "Print what would be removed, and why"),
			cli.DurationFlag(&o.policy.MinAge, "min-age", "Keep containers younger than `DURATION`"),
			cli.IntFlag(&o.policy.MaxPerContainer, "max-per-container", "Keep `N` dead attempts of a container; -1 keeps all"),
			cli.IntFlag(&o.policy.MaxContainers, "max-containers", "Keep `N` dead containers in total; -1 keeps all"),
			cli.BoolFlag(&o.deadPods, "dead-pods", "Treat pods without running containers as deleted"),
		}, imagePolicyFlags(&o.images)...),
		Check: func(_ *cli.Invocation, c *urfave.Context) error {
			return cmp.Or(checkImagePolicy(o.images), cli.ArgCount(c, 0, 0))
		},
		Run: o.run,
	}
}

func (o *gcOptions) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	r, err := openPodRuntime(ctx, printer, connector, podRuntimeOptions{})
	if err != nil {
		return err
	}
	defer r.close()
	sources := kuberuntime.Sources{}
	if o.deadPods { // a dead pod has no ready sandbox and no running container, or is only a directory
		running, err := r.GetPods(ctx, false)
		if err != nil {
			return err
		}
		sources.Deleted = func(uid string) bool {
			return !slices.ContainsFunc(running, func(p *pod.Pod) bool { return p.UID == uid })
		}
	}
	garbage, err := r.PlanGarbage(ctx, o.policy, sources)
	if err != nil {
		return err
	}
	if o.images.High > 0 {
		images, err := r.PlanImages(ctx, o.images)
		if err != nil {
			printer.Warn("images are left alone: %w", err)
		} else {
			garbage.Items = append(garbage.Items, images.Items...)
		}
	}
	sizes, err := disk.ReadGarbage(ctx, r.conn, garbage.Items)
	if err != nil {
		return err
	}
	var errs []error
	var freed []int
	for i, item := range garbage.Items {
		verb, gone := "would remove", true
		if !o.dryRun {
			if gone, err = r.CollectItem(ctx, item); err != nil {
				errs = append(errs, err)
				continue
			}
			verb = "removed"
		}
		if gone {
			freed = append(freed, i)
		} else {
			verb = "left, for it is in use by now:"
		}
		name := item.ID
		if item.Name != "" {
			name = fmt.Sprintf("%s (%s)", item.Name, item.ID)
		}
		size := ""
		if one := sizes.Size(i); one != nil && one.Bytes > 0 {
			size = ", " + one.String()
		}
		errs = append(errs, printer.Say("%s %s %s: %s%s", verb, item.Kind, name, item.Why, size))
	}
	if len(garbage.Items) > 0 {
		verb := "freed"
		if o.dryRun {
			verb = "would free"
		}
		errs = append(errs, printer.Say("%s %s", verb, sizes.Sum(freed)))
	}
	return cli.Join(errs...)
}
