package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/output"
	v1 "k8s.io/api/core/v1"
)

// newApply brings up the pods of manifests, or brings them up to date.
func newApply(env *Env) *cli.Command {
	return &cli.Command{
		Name:  "apply",
		Usage: "run pods from Kubernetes manifests",
		Description: describe("Reads v1 Pods and the ConfigMaps, Secrets and RuntimeClasses they use, and brings the pods up: volumes, sandbox, init containers, sidecars, hooks. "+
			"A new image restarts its container; any other change replaces the pod. No process stays behind to restart what ends: crishim sync does that.",
			"crishim apply -f web.yaml", "crishim apply --wait -f pods/", "crishim apply --wait=ready -f job.yaml", "crishim apply --dry-run -f web.yaml"),
		Flags: append([]cli.Flag{
			manifestFlag(),
			newWaitFlag(), waitTimeoutFlag(),
			&cli.BoolFlag{Name: "dry-run", Usage: "print the CRI requests that would create the pods, and change nothing"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "do not print the steps"},
		}, formatFlags()...),
		Action: action(env, applyOptionsOf, runApply),
	}
}

type applyOptions struct {
	set           *manifest.Set
	wait          kuberuntime.Wait
	timeout       time.Duration
	dryRun, quiet bool
	format        string
	output        output.Options
}

func applyOptionsOf(env *Env, c *cli.Context) (o applyOptions, err error) {
	files := c.StringSlice("filename")
	switch {
	case len(files) == 0:
		return o, usagef("-f is missing: give a manifest, a folder of manifests, or - for standard input")
	case c.IsSet("wait") && c.Args().First() == "ready":
		return o, withHintedUsage("did you mean --wait=ready?", `apply takes no arguments, got "ready"`)
	case c.Args().Present():
		return o, usagef("apply takes no arguments, got %s", quote(c.Args().First()))
	}
	if o.wait, o.timeout, err = waitOf(c); err != nil {
		return o, err
	}
	o.dryRun, o.quiet, o.format = c.Bool("dry-run"), c.Bool("quiet"), c.String("output")
	if o.output, err = readFormat(env, c); err != nil {
		return o, err
	}
	o.output.Quiet = false // here it is about the steps
	o.set, err = readManifests(env, files)
	return o, err
}

// readManifests reads everything and gives each pod its identity.
func readManifests(env *Env, files []string) (*manifest.Set, error) {
	set, err := manifest.Read(env.In, files...)
	if err != nil {
		return nil, inputProblems(err)
	}
	if len(set.Pods) == 0 {
		return nil, inputError{errors.New("there is no Pod in the input")}
	}
	for _, p := range set.Pods {
		if err := kuberuntime.Prepare(p.Pod, "", env.Now()); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// inputProblems makes one failure of each problem of an input.
func inputProblems(err error) error {
	var problems manifest.Errors
	if !errors.As(err, &problems) {
		return inputError{err}
	}
	var all []error
	for _, one := range problems {
		all = append(all, inputError{one})
	}
	return join(all...)
}

func runApply(ctx context.Context, env *Env, o applyOptions) error {
	if o.dryRun {
		return dryRunApply(env, o)
	}
	ro := podRuntimeOptions{}
	if !o.quiet {
		ro.steps, ro.progress = env.stepLine, true
	}
	r, err := env.podRuntime(ctx, ro)
	if err != nil {
		return err
	}
	defer r.close()
	// A slow pull or hook of one pod holds up no other.
	numbers := make([]int, len(o.set.Pods))
	for i := range numbers {
		numbers[i] = i
	}
	applied := make([]*v1.Pod, len(o.set.Pods))
	err = inParallel(env, numbers, func(env *Env, i int) (err error) {
		p := o.set.Pods[i].Pod
		if applied[i], err = applyPod(ctx, env, r, p, o); err != nil {
			err = about(kuberuntime.FullName(p), err)
		}
		return err
	})
	if o.format != "" && ctx.Err() == nil {
		applied = slices.DeleteFunc(applied, func(p *v1.Pod) bool { return p == nil })
		err = join(err, printPods(env, applied, o.output))
	}
	return err
}

func applyPod(ctx context.Context, env *Env, r *podRuntime, p *v1.Pod, o applyOptions) (*v1.Pod, error) {
	if o.timeout > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, o.timeout, gaveUp(o.timeout))
		defer cancel()
		ctx = limited
	}
	unlock, err := lockPod(ctx, env, r, p.Namespace, p.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	_, noRecord := r.Record(string(p.UID))
	replaced, existed, err := r.Replace(ctx, p)
	if err != nil {
		return nil, err
	}
	view, err := r.Up(ctx, p, o.set, o.wait)
	if err != nil {
		env.sayWhatIsLeft(ctx, r, p, err, noRecord != nil)
		return nil, err
	}
	status, err := r.GetPodStatus(ctx, string(p.UID), p.Name, p.Namespace)
	if err != nil {
		return nil, err
	}
	if o.format == "" {
		err = env.say("%s", appliedLine(p, view, status.IPs, replaced, existed))
	}
	return r.APIPod(p, view, status), err
}

// appliedLine is the result of one pod.
func appliedLine(p *v1.Pod, view *plan.View, ips []string, replaced, existed bool) string {
	what := "created"
	switch {
	case replaced:
		what = "replaced"
	case existed:
		what = "up to date"
	}
	line := fmt.Sprintf("pod %s: %s, %s", kuberuntime.FullName(p), what, phaseText(view))
	if len(ips) > 0 {
		line += ", address " + ips[0]
	}
	return line
}

func phaseText(view *plan.View) string {
	switch {
	case view.Ready:
		return "ready"
	case view.Phase == v1.PodRunning:
		return "running"
	case view.Phase == v1.PodSucceeded:
		return "succeeded"
	case view.Phase == v1.PodFailed:
		return "failed"
	}
	return "pending"
}

// sayWhatIsLeft tells what there is of a pod that failed, and how it goes away. Where there
// is only the folder that this apply made, it removes that: delete would not find the pod.
func (env *Env) sayWhatIsLeft(ctx context.Context, r *podRuntime, p *v1.Pod, failure error, ownFolder bool) {
	interrupted := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), client.QueryLimit)
	defer cancel()
	name := kuberuntime.FullName(p)
	status, err := r.GetPodStatus(ctx, string(p.UID), p.Name, p.Namespace)
	if err != nil {
		env.warn("pod %s is left half made; what exists cannot be asked: %v", name, err)
		return
	}
	if len(status.Sandboxes)+len(status.Containers) == 0 {
		// A call that was cut off may bring its sandbox yet.
		if ownFolder && !interrupted {
			if err := r.Remove(ctx, p, status, nil); err != nil {
				env.warn("pod %s: %v", name, err)
			}
		}
		return
	}
	text := fmt.Sprintf("pod %s is left with %d sandboxes", name, len(status.Sandboxes))
	if len(status.Sandboxes) == 1 {
		text = fmt.Sprintf("pod %s is left with 1 sandbox", name)
	}
	said := map[string]bool{}
	for _, c := range status.Containers { // the newest attempt of each comes first
		if !said[c.Name] {
			text += fmt.Sprintf(", container %s %s", c.Name, strings.ToLower(strings.TrimPrefix(c.State.String(), "CONTAINER_")))
		}
		said[c.Name] = true
	}
	next := "crishim apply goes on from there"
	if errors.Is(failure, kuberuntime.ErrPodFailed) {
		next = "crishim describe " + name + " shows it"
	}
	env.warn("%s; %s, crishim delete %s removes it", text, next, name)
}

// dryRunApply prints the requests and dials nothing.
func dryRunApply(env *Env, o applyOptions) error {
	host, err := kuberuntime.ReadHost()
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range o.set.Pods {
		run, creates, err := kuberuntime.Requests(p.Pod, o.set, host, kuberuntime.DefaultDirs(env.LookupEnv))
		if err != nil {
			errs = append(errs, about(kuberuntime.FullName(p.Pod), err))
			continue
		}
		errs = append(errs, output.Message(env.Out, run, o.output))
		for _, create := range creates {
			errs = append(errs, output.Message(env.Out, create, o.output))
		}
	}
	return join(errs...)
}

// printPods writes pods as Kubernetes does: one as itself, several as a List; or their
// names, as other verbs take them.
func printPods(env *Env, pods []*v1.Pod, o output.Options) error {
	var value any = map[string]any{"apiVersion": "v1", "kind": "List", "items": pods}
	if len(pods) == 1 {
		value = pods[0]
	}
	names := func(w io.Writer, _ output.Options) error {
		for _, p := range pods {
			if _, err := fmt.Fprintln(w, kuberuntime.FullName(p)); err != nil {
				return err
			}
		}
		return nil
	}
	if o.Format.Kind == output.Name {
		return names(env.Out, o)
	}
	return output.Value(env.Out, value, o, names)
}
