package commands

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// newGC removes what is dead, as a kubelet would.
func newGC(env *Env) *cli.Command {
	policy, images := kuberuntime.DefaultGCPolicy(), kuberuntime.DefaultImagePolicy()
	return &cli.Command{
		Name:  "gc",
		Usage: "remove dead containers and sandboxes, leftover folders, unused images",
		Description: describe("Goes by the kubelet's policies. What runs is never touched, nor is the last attempt of a container of a pod that is still there. "+
			"Images go only when the disk is fuller than --image-high.",
			"crishim gc --dry-run", "crishim gc --dead-pods --max-per-container 0"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Usage: "say what would be removed, and why"},
			&cli.DurationFlag{Name: "min-age", Usage: "leave containers younger than `TIME`", Value: policy.MinAge},
			&cli.IntFlag{Name: "max-per-container", Usage: "keep `N` dead attempts of a container (-1: all)", Value: policy.MaxPerContainer},
			&cli.IntFlag{Name: "max-containers", Usage: "keep `N` dead containers in all (-1: any number)", Value: policy.MaxContainers},
			&cli.BoolFlag{Name: "dead-pods", Usage: "pods of which nothing runs count as gone"},
			&cli.IntFlag{Name: "image-high", Usage: "remove unused images from `PERCENT` disk use on (0: never)", Value: images.High},
			&cli.IntFlag{Name: "image-low", Usage: "until `PERCENT` is reached", Value: images.Low},
		},
		Action: action(env, gcOptionsOf, runGC),
	}
}

type gcOptions struct {
	policy           kuberuntime.GCPolicy
	images           kuberuntime.ImagePolicy
	dryRun, deadPods bool
}

func gcOptionsOf(_ *Env, c *cli.Context) (o gcOptions, err error) {
	o.dryRun, o.deadPods = c.Bool("dry-run"), c.Bool("dead-pods")
	o.policy = kuberuntime.GCPolicy{MinAge: c.Duration("min-age"), MaxPerContainer: c.Int("max-per-container"), MaxContainers: c.Int("max-containers")}
	o.images = kuberuntime.ImagePolicy{High: c.Int("image-high"), Low: c.Int("image-low")}
	if err := checkImagePolicy(o.images); err != nil {
		return o, err
	}
	return o, noArgs(c)
}

func runGC(ctx context.Context, env *Env, o gcOptions) error {
	r, err := env.podRuntime(ctx, podRuntimeOptions{})
	if err != nil {
		return err
	}
	defer r.close()
	sources := kuberuntime.Sources{AllReady: true}
	if o.deadPods {
		if sources.Deleted, err = deadPods(ctx, r); err != nil {
			return err
		}
	}
	garbage, err := r.PlanGarbage(ctx, o.policy, sources)
	if err != nil {
		return err
	}
	if o.images.High > 0 {
		images, err := r.PlanImages(ctx, o.images)
		if err != nil {
			env.warn("images are left alone: %s", sentence(env, err))
		} else {
			garbage.Items = append(garbage.Items, images.Items...)
		}
	}
	var errs []error
	for _, item := range garbage.Items {
		verb := "would remove"
		if !o.dryRun {
			if err := r.Collect(ctx, &kuberuntime.Garbage{Items: []kuberuntime.GarbageItem{item}}); err != nil {
				errs = append(errs, err)
				continue
			}
			verb = "removed"
		}
		errs = append(errs, env.say("%s %s %s: %s", verb, item.Kind, garbageName(item), item.Why))
	}
	return join(errs...)
}

func garbageName(item kuberuntime.GarbageItem) string {
	if item.Name == "" {
		return item.ID
	}
	return fmt.Sprintf("%s (%s)", item.Name, item.ID)
}

// deadPods knows the pods that have no ready sandbox and no running container. Folders of
// pods that the runtime does not know at all count as theirs.
func deadPods(ctx context.Context, r *podRuntime) (func(uid string) bool, error) {
	running, err := r.GetPods(ctx, false)
	if err != nil {
		return nil, err
	}
	alive := map[string]*pod.Pod{}
	for _, p := range running {
		alive[p.UID] = p
	}
	return func(uid string) bool { return alive[uid] == nil }, nil
}
