package commands

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// newDelete ends pods properly and removes all that is left of them.
func newDelete(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "delete",
		Usage:     "end pods and remove them with their volumes",
		ArgsUsage: "[NAMESPACE/]NAME...",
		Description: describe("Runs the preStop hooks, gives containers their grace period, and removes containers, sandboxes, volumes and logs. "+
			"Pods that other tools made are ended in the same way; their files stay.",
			"crishim delete web", "crishim delete -f web.yaml", "crishim delete --grace-period 0 team/web"),
		Flags: []cli.Flag{
			manifestFlag(),
			&cli.Int64Flag{Name: "grace-period", Usage: "give containers `SECONDS` to end instead of what the manifest says", Value: -1},
			&cli.BoolFlag{Name: "ignore-not-found", Usage: "a pod that is not there is no failure"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "do not print the steps"},
		},
		Action: action(env, deleteOptionsOf, runDelete),
	}
}

type deleteOptions struct {
	names                []string
	grace                *int64
	ignoreMissing, quiet bool
}

func deleteOptionsOf(env *Env, c *cli.Context) (o deleteOptions, err error) {
	o.ignoreMissing, o.quiet = c.Bool("ignore-not-found"), c.Bool("quiet")
	if grace := c.Int64("grace-period"); c.IsSet("grace-period") {
		if grace < 0 {
			return o, usagef("--grace-period %d: want a number of seconds that is not negative", grace)
		}
		o.grace = &grace
	}
	files := c.StringSlice("filename")
	switch {
	case len(files) > 0 && c.Args().Present():
		return o, usagef("give either -f or names, not both")
	case len(files) > 0:
		set, err := readManifests(env, files)
		if err != nil {
			return o, err
		}
		for _, p := range set.Pods {
			o.names = append(o.names, kuberuntime.FullName(p.Pod))
		}
		return o, nil
	}
	o.names = c.Args().Slice()
	return o, argCount(c, 1, -1)
}

func runDelete(ctx context.Context, env *Env, o deleteOptions) error {
	ro := podRuntimeOptions{}
	if !o.quiet {
		ro.steps = env.stepLine
	}
	r, err := env.podRuntime(ctx, ro)
	if err != nil {
		return err
	}
	defer r.close()
	pods, err := r.GetPods(ctx, true)
	if err != nil {
		return err
	}
	return inParallel(env, o.names, func(env *Env, name string) error {
		found := podsNamed(pods, name)
		if len(found) == 0 {
			if o.ignoreMissing {
				return nil
			}
			return noPodNamed(name)
		}
		for _, p := range found {
			if err := deletePod(ctx, env, r, p, o.grace); err != nil {
				return about(name, err)
			}
		}
		return env.say("pod %s: deleted", found[0].FullName())
	})
}

func deletePod(ctx context.Context, env *Env, r *podRuntime, p *pod.Pod, grace *int64) error {
	if folder := r.OwnerOf(p).Folder; folder != "" {
		if kuberuntime.FolderInUse(r.dirs, folder) {
			return withHint(fmt.Errorf("crishim sync %s looks after it and would make it again", folder), "remove its manifest from that folder")
		}
	}
	unlock, err := lockPod(ctx, env, r, p.Namespace, p.Name)
	if err != nil {
		return err
	}
	defer unlock()
	status, err := r.GetPodStatus(ctx, p.UID, p.Name, p.Namespace)
	if err != nil {
		return err
	}
	return r.Remove(ctx, nil, status, grace)
}

func noPodNamed(name string) error {
	return withHint(fmt.Errorf("there is no pod %s", quote(name)), "`crishim pods` lists them")
}

// podsNamed finds pods by namespace/name, by name (first in default, else in the only
// namespace that has it), and by uid. Several pods of one name are all meant.
func podsNamed(pods []*pod.Pod, ref string) []*pod.Pod {
	pick := func(match func(*pod.Pod) bool) (out []*pod.Pod) {
		for _, p := range pods {
			if match(p) {
				out = append(out, p)
			}
		}
		return out
	}
	if strings.Contains(ref, "/") {
		return pick(func(p *pod.Pod) bool { return p.FullName() == ref })
	}
	if found := pick(func(p *pod.Pod) bool { return p.FullName() == "default/"+ref }); len(found) > 0 {
		return found
	}
	if found := pick(func(p *pod.Pod) bool { return p.UID == ref }); len(found) > 0 {
		return found
	}
	found := pick(func(p *pod.Pod) bool { return p.Name == ref })
	for _, p := range found {
		if p.Namespace != found[0].Namespace {
			return nil
		}
	}
	return found
}
