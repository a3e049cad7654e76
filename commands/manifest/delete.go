package manifest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client/suggest"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type deleteOptions struct {
	files, names         []string
	grace                *int64
	ignoreMissing, quiet bool
}

// NewDelete stops pods with their hooks and grace periods and removes them.
func NewDelete(env *cli.Env) *urfave.Command {
	o := &deleteOptions{}
	return &urfave.Command{
		Name:      "delete",
		Usage:     "delete pods with their volumes",
		ArgsUsage: "[NAMESPACE/]NAME...",
		Description: cli.WithExamples("Runs the preStop hooks, gives containers their grace period, and removes containers, sandboxes, volumes and logs. "+
			"Pods that other tools made are ended in the same way; their files stay.",
			"crishim delete web", "crishim delete -f web.yaml", "crishim delete --grace-period 0 team/web"),
		Flags: []urfave.Flag{
			manifestFlag(&o.files),
			cli.Typed(&o.grace, parseGrace, "grace-period", "grace period in `SECONDS` instead of the manifest's"),
			cli.BoolFlag(&o.ignoreMissing, "ignore-not-found", "treat a missing pod as success"),
			cli.BoolFlag(&o.quiet, "quiet", "do not print the steps", "q"),
		},
		Action: env.Offline(o.check, o.run),
	}
}

func parseGrace(text string) (*int64, error) {
	grace, err := strconv.ParseInt(text, 10, 64)
	if err != nil || grace < 0 {
		return nil, errors.New("must be a number of seconds that is not negative")
	}
	return &grace, nil
}

func (o *deleteOptions) check(env *cli.Env, c *urfave.Context) error {
	o.names = c.Args().Slice()
	switch {
	case len(o.files) == 0:
		return cli.ArgCount(c, 1, -1)
	case len(o.names) > 0:
		return cli.Usagef("give either -f or names, not both")
	}
	set, err := readManifests(env, o.files)
	if err != nil {
		return err
	}
	for _, p := range set.Pods {
		o.names = append(o.names, kuberuntime.FullName(p.Pod))
	}
	return nil
}

func (o *deleteOptions) run(ctx context.Context, env *cli.Env) error {
	ro := podRuntimeOptions{}
	if !o.quiet {
		ro.steps = stepLines(env)
	}
	r, err := openPodRuntime(ctx, env, ro)
	if err != nil {
		return err
	}
	defer r.close()
	pods, err := r.GetPods(ctx, true)
	if err != nil {
		return err
	}
	return cli.InParallel(env, o.names, cli.AtOnce, func(env *cli.Env, name string) error {
		found := podsNamed(pods, name)
		if len(found) == 0 {
			if o.ignoreMissing {
				return nil
			}
			return noPodNamed(pods, name)
		}
		for _, p := range found {
			if err := deletePod(ctx, env, r, p, o.grace); err != nil {
				return cli.About(name, err)
			}
		}
		return env.Say("pod %s: deleted", found[0].FullName())
	})
}

func deletePod(ctx context.Context, env *cli.Env, r *podRuntime, p *pod.Pod, grace *int64) error {
	if folder := r.OwnerOf(ctx, p).Folder; folder != "" {
		if kuberuntime.FolderInUse(r.dirs, folder) {
			return cli.WithHint(fmt.Errorf("crishim sync %s looks after it and would make it again", folder), "remove its manifest from that folder")
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

// noPodNamed suggests the pod that was most likely meant.
func noPodNamed(pods []*pod.Pod, ref string) error {
	var names []string
	for _, p := range pods {
		name := p.Name
		if strings.Contains(ref, "/") {
			name = p.FullName()
		}
		names = append(names, name)
	}
	hint := "`crishim pods` lists them"
	if best := suggest.Closest(ref, names); best != "" {
		hint = fmt.Sprintf("did you mean %s? %s", best, hint)
	}
	return cli.WithHint(fmt.Errorf("there is no pod %s", cli.Quote(ref)), "%s", hint)
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
