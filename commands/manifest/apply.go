package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/suggest"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

type applyOptions struct {
	files     []string
	input     inputOptions
	set       *manifest.Set
	wait      podWait
	recursive bool
	dryRun    bool
	quiet     bool
	plugins   cli.CredentialPlugins
	view      cli.View
}

func NewApply(in *cli.Invocation) *cli.Verb {
	o := &applyOptions{}
	return &cli.Verb{
		Usage:     "Run pods from Kubernetes manifests",
		ArgsUsage: "[FILE...]",
		Args:      cli.CompleteFiles,
		Description: cli.WithExamples("Reads Pods, Deployments and other workloads with the ConfigMaps, Secrets and claims they use, and starts the pods: volumes, sandbox, init containers, sidecars, hooks. "+
			"A new image restarts its container; any other change replaces the pod. After apply has ended it restarts no containers; crishim sync does.",
			"crishim apply -f web.yaml", "crishim apply --wait -f pods/", "crishim apply --wait=ready -f job.yaml", "crishim apply --dry-run -f web.yaml"),
		Flags: slices.Concat([]urfave.Flag{
			manifestFlag(&o.files),
			recursiveFlag(&o.recursive),
			cli.BoolFlag(&o.dryRun, "dry-run", "Print the CRI requests that would create the pods, and change nothing"),
			cli.BoolFlag(&o.quiet, "quiet", "Do not print the steps", "q"),
		}, o.input.flags(), o.plugins.Flags(), o.wait.flags(), o.view.Flags()),
		Check: o.check,
		Run:   o.run,
	}
}

func (o *applyOptions) check(in *cli.Invocation, c *urfave.Context) (err error) {
	if c.IsSet("wait") && c.Args().First() == "ready" {
		return &cli.UsageError{Text: `"ready" is no manifest`, Next: "did you mean --wait=ready?"}
	}
	if o.files = append(o.files, c.Args().Slice()...); len(o.files) == 0 {
		return cli.Usagef("no manifest: give files, directories of manifests, or - for standard input")
	}
	if o.recursive {
		if o.files, err = withSubdirectories(o.files); err != nil {
			return cli.BadInput(err)
		}
	}
	if err = cmp.Or(o.input.check(in, c), o.wait.check(c), o.view.Check(in), o.plugins.Load(in)); err == nil {
		o.set, err = readManifests(in, o.input.Options, o.files)
	}
	if err == nil {
		for _, text := range o.set.Warnings {
			in.Printer.Warn("%s", text)
		}
	}
	return err
}

// readManifests reads all documents and gives each pod its identity.
func readManifests(in *cli.Invocation, o manifest.Options, files []string) (*manifest.Set, error) {
	set, err := manifest.Read(o, in.In, files...)
	var problems manifest.Errors
	switch {
	case errors.As(err, &problems): // a failure for each problem
		var all []error
		for _, one := range problems {
			all = append(all, cli.BadInput(one))
		}
		return nil, cli.Join(all...)
	case errors.Is(err, fs.ErrNotExist):
		return nil, cli.BadInput(cli.WithHint(err, "%s", otherFile(err)))
	case err != nil:
		return nil, cli.BadInput(err)
	case len(set.Pods) == 0:
		return nil, cli.BadInput(errors.New("there is no Pod in the input"))
	}
	for _, p := range set.Pods {
		if err := kuberuntime.Prepare(p.Pod, "", in.Now()); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// otherFile returns the hint for a missing file: a file with a similar name in its directory, else the forms of input.
func otherFile(err error) string {
	var missing *fs.PathError
	if errors.As(err, &missing) {
		dir := filepath.Dir(missing.Path)
		entries, _ := os.ReadDir(dir) // without entries there is no suggestion
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if best := suggest.Closest(filepath.Base(missing.Path), names); best != "" {
			return "did you mean " + filepath.Join(dir, best) + "?"
		}
	}
	return "give files, directories of manifests, or - for standard input"
}

func (o *applyOptions) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	if o.dryRun {
		return o.printRequests(printer, pod.DefaultDirs(connector.LookupEnv))
	}
	ro := podRuntimeOptions{plugins: o.plugins}
	if !o.quiet {
		ro.steps, ro.progress = stepLines(printer), true
	}
	r, err := openPodRuntime(ctx, printer, connector, ro)
	if err != nil {
		return err
	}
	defer r.close()
	// Pods are applied in parallel, so that a slow pull or hook of one pod does not delay the others. numbers are the
	// indices of the pods.
	numbers := make([]int, len(o.set.Pods))
	for i := range numbers {
		numbers[i] = i
	}
	applied, ends := make([]*v1.Pod, len(o.set.Pods)), make([]string, len(o.set.Pods))
	err = cli.InParallel(printer, numbers, cli.MaxConcurrent, func(printer *cli.Printer, i int) (err error) {
		p := o.set.Pods[i].Pod
		if applied[i], ends[i], err = o.apply(ctx, printer, r, p); err != nil {
			err = cli.About(kuberuntime.FullName(p), err)
		}
		return err
	})
	if i := slices.IndexFunc(ends, func(end string) bool { return end != "" }); i >= 0 {
		p := o.set.Pods[i].Pod
		cli.PointToDescribe(printer, cli.ContainerPath{Namespace: p.Namespace, Pod: p.Name}, string(p.UID))
	}
	if o.view.FormatFlag != "" && ctx.Err() == nil {
		applied = slices.DeleteFunc(applied, func(p *v1.Pod) bool { return p == nil })
		err = cli.Join(err, printPods(printer, applied, o.view.Options))
	}
	return err
}

// apply brings up one pod. The second result names containers that have ended already.
func (o *applyOptions) apply(ctx context.Context, printer *cli.Printer, r *podRuntime, p *v1.Pod) (*v1.Pod, string, error) {
	ctx, cancel := o.wait.limit(ctx)
	defer cancel()
	unlock, err := lockPod(ctx, printer, r, p.Namespace, p.Name)
	if err != nil {
		return nil, "", err
	}
	defer unlock()
	_, recordErr := r.Record(string(p.UID))
	replaced, listed, err := r.RemoveReplaced(ctx, p)
	if err != nil {
		return nil, "", err
	}
	view, status, err := r.Up(ctx, p, o.set, listed, o.wait.Wait)
	if err != nil {
		if left := o.cleanUpOrReport(ctx, printer, r, p, err, recordErr != nil); left != "" {
			switch hint := cli.HintOf(err); {
			case strings.HasSuffix(hint, "?"):
				left = hint + " " + left
			case hint != "":
				left = hint + ", " + left
			}
			err = cli.WithHint(err, "%s", left)
		}
		return nil, "", err
	}
	end := endedAtOnce(p, view)
	if o.view.FormatFlag == "" {
		err = printer.Say("%s", appliedLine(p, view, end, status, replaced, listed != nil))
	}
	return r.APIPod(p, view, status), end, err
}

// endedAtOnce names the exited containers of a running pod that have failed or should be running. apply does not restart
// them.
func endedAtOnce(p *v1.Pod, view *plan.View) string {
	var ends []string
	for _, c := range view.Containers {
		s := c.Status
		if s.Exited() && !c.Ephemeral && (c.Sidecar || !c.Init && (!s.Succeeded() || plan.ShouldRestart(p, c.Container, s))) && view.Phase == v1.PodRunning {
			ends = append(ends, fmt.Sprintf("container %s has exited with status %d", s.Name, s.ExitCode))
		}
	}
	return strings.Join(ends, ", ")
}

func appliedLine(p *v1.Pod, view *plan.View, end string, status *pod.Status, replaced, existed bool) string {
	what := "created"
	switch {
	case replaced:
		what = "replaced"
	case existed:
		what = "up to date"
	case len(status.Sandboxes) == 0: // the pod ended earlier and only its record is left
		what = "had already ended"
	}
	line := fmt.Sprintf("pod %s: %s, %s", kuberuntime.FullName(p), what, cmp.Or(end, phaseText(view, status)))
	if len(status.IPs) > 0 {
		line += ", address " + status.IPs[0]
	}
	return line
}

func phaseText(view *plan.View, status *pod.Status) string {
	switch {
	case kuberuntime.IsReady(view, status):
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

// cleanUpOrReport warns about the remains of a pod that failed, and returns a hint with the next commands. It removes the
// directory of a pod that has no sandbox and no container, if this apply created the directory.
func (o *applyOptions) cleanUpOrReport(ctx context.Context, printer *cli.Printer, r *podRuntime, p *v1.Pod, failure error, ownDir bool) string {
	interrupted := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), client.QueryLimit)
	defer cancel()
	name := kuberuntime.FullName(p)
	status, err := r.GetPodStatus(ctx, string(p.UID), p.Name, p.Namespace)
	if err != nil {
		printer.Warn("pod %s is partly created, and its state is unknown: %w", name, err)
		return ""
	}
	if len(status.Sandboxes)+len(status.Containers) == 0 {
		// The runtime may still create the sandbox of an interrupted call, so the directory stays.
		if ownDir && !interrupted {
			if err := r.Remove(ctx, p, status, nil); err != nil {
				printer.Warn("pod %s: %w", name, err)
			}
		}
		return ""
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
	printer.Warn("%s", text)
	name = shellwords.Quote(cli.ContainerPath{Namespace: p.Namespace, Pod: p.Name}.PodRef())
	next := []string{"`crishim describe " + name + "` shows more"}
	if !errors.Is(failure, kuberuntime.ErrPodFailed) && !slices.Contains(o.files, "-") {
		next = append(next, "`crishim apply "+shellwords.Quote(o.files...)+"` goes on from there")
	}
	return strings.Join(append(next, "`crishim delete "+name+"` removes what is left"), ", ")
}

// printRequests implements --dry-run. It does not connect to a runtime.
func (o *applyOptions) printRequests(printer *cli.Printer, dirs pod.Dirs) error {
	host, err := criconfig.ReadHost()
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range o.set.Pods {
		run, creates, err := kuberuntime.Requests(p.Pod, o.set, host, dirs)
		if err != nil {
			errs = append(errs, cli.About(kuberuntime.FullName(p.Pod), err))
			continue
		}
		errs = append(errs, output.Message(printer.Out, run, o.view.Options))
		for _, create := range creates {
			errs = append(errs, output.Message(printer.Out, create, o.view.Options))
		}
	}
	return cli.Join(errs...)
}

// printPods writes a single pod as an object and several pods as a List, like kubectl. With -o name it writes their names.
func printPods(printer *cli.Printer, pods []*v1.Pod, o output.Options) error {
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
		return names(printer.Out, o)
	}
	return output.Value(printer.Out, value, o, names)
}
