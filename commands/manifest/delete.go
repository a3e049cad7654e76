package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	urfave "github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/suggest"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type deleteOptions struct {
	files, names         []string
	listed               []string          // full names of the Pods in the files
	workloads            map[string]string // workloads in the files, with the name of their first pod
	grace                *int64
	ignoreMissing, quiet bool
	all, yes, recursive  bool
	selector             client.Selector
	in                   cli.Scope
	confirm              func(ctx context.Context, question string) (bool, error)
}

func NewDelete(in *cli.Invocation) *cli.Verb {
	o := &deleteOptions{confirm: in.Confirm}
	return &cli.Verb{
		Usage:     "Delete pods with their volumes",
		ArgsUsage: "POD|WORKLOAD...",
		Args:      cli.CompletePods,
		Description: cli.WithExamples("Runs the preStop hooks, gives containers their grace period, and removes containers, sandboxes, logs and volumes, except PersistentVolumeClaims. "+
			"Pods of other tools end in the same way, but keep their files. A workload, such as deployment/web, stands for all its pods. If a name is wrong, no pod is deleted. "+
			"--all and --selector choose pods of apply, and of sync unless it is running.",
			"crishim delete web", "crishim delete pod web", "crishim delete -f web.yaml", "crishim delete --grace-period 0 team/web", "crishim delete -l app=web", "crishim delete --all --yes"),
		Flags: []urfave.Flag{
			manifestFlag(&o.files),
			recursiveFlag(&o.recursive),
			cli.Typed(&o.grace, parseGrace, "grace-period", "Use a grace period of `SECONDS` instead of the manifest's"),
			cli.BoolFlag(&o.ignoreMissing, "ignore-not-found", "Treat a missing pod as success"),
			cli.BoolFlag(&o.all, "all", "Delete all pods of apply, and of sync unless it is running"),
			cli.SelectorFlag(&o.selector, "l"),
			cli.BoolFlag(&o.yes, "yes", "With --all: do not ask for confirmation"),
			cli.BoolFlag(&o.quiet, "quiet", "Do not print the steps", "q"),
			o.in.NamespaceFlag(),
		},
		Check: o.check,
		Run:   o.run,
	}
}

func parseGrace(text string) (*int64, error) {
	grace, err := strconv.ParseInt(text, 10, 64)
	if err != nil || grace < 0 {
		return nil, errors.New("must be a number of seconds that is not negative")
	}
	return &grace, nil
}

func (o *deleteOptions) check(in *cli.Invocation, c *urfave.Context) error {
	o.names = c.Args().Slice()
	switch {
	case o.all || len(o.selector) > 0:
		if len(o.names)+len(o.files) > 0 || o.all && len(o.selector) > 0 {
			return cli.Usagef("give names, -f, --selector or --all, not several of them")
		}
		return nil
	case len(o.files) == 0:
		return cli.ArgCount(c, 1, -1)
	case len(o.names) > 0:
		return cli.Usagef("give either -f or names, not both")
	case o.in.Namespace != "":
		return cli.Usagef("give either -f or --namespace, not both: manifests name their namespaces")
	}
	if o.recursive {
		files, err := withSubdirectories(o.files)
		if err != nil {
			return cli.BadInput(err)
		}
		o.files = files
	}
	set, err := readManifests(in, manifest.Options{NamesOnly: true}, o.files)
	if err != nil {
		return err
	}
	o.workloads = map[string]string{}
	for _, p := range set.Pods {
		if p.Workload != nil {
			o.workloads[workloadOf(p.Pod)] = kuberuntime.FullName(p.Pod)
		} else {
			o.listed = append(o.listed, kuberuntime.FullName(p.Pod))
		}
	}
	return nil
}

// workloadOf returns the name of the workload that a pod was created from, "" for other pods.
func workloadOf(p *v1.Pod) string {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return ""
	}
	return p.Namespace + "/" + owner.Kind + "/" + owner.Name
}

func (o *deleteOptions) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	ro := podRuntimeOptions{}
	if !o.quiet {
		ro.steps = stepLines(printer)
	}
	r, err := openPodRuntime(ctx, printer, connector, ro)
	if err != nil {
		return err
	}
	defer r.close()
	pods, err := r.KnownPods(ctx)
	if err != nil {
		return err
	}
	pods = podsIn(pods, o.in)
	if o.all || len(o.selector) > 0 {
		chosen, err := o.choose(ctx, printer, r, pods)
		if err != nil {
			return err
		}
		return o.remove(ctx, printer, r, chosen)
	}
	if err := o.resolveWorkloads(r, pods); err != nil {
		return err
	}
	if len(o.names) == 0 {
		return nil // the workloads have no pods, and --ignore-not-found is set
	}
	found, missing, err := o.find(ctx, r, pods)
	if err != nil {
		return err
	}
	return cli.Join(missing, o.remove(ctx, printer, r, found))
}

// resolveWorkloads replaces workloads with their pods. A workload comes from a file or from the arguments, as
// deployment/web or deployment web. If a workload from a file has no pods, its first replica is reported as missing.
func (o *deleteOptions) resolveWorkloads(r *podRuntime, pods []*pod.Pod) error {
	owned := map[string][]string{}
	for _, p := range pods {
		if record, err := r.Record(p.UID); err == nil {
			owner := workloadOf(record.Pod)
			owned[owner] = append(owned[owner], p.FullName())
		}
	}
	var names []string
	var errs []error
	kind, given := "", o.names
	if len(given) > 1 && !slices.ContainsFunc(pods, func(p *pod.Pod) bool { return p.Name == given[0] }) {
		if kind = workloadKind(given[0]); kind != "" {
			given = given[1:]
		}
	}
	for _, name := range given {
		kind, workload := kind, name
		if word, rest, _ := strings.Cut(name, "/"); kind == "" && !slices.ContainsFunc(pods, func(p *pod.Pod) bool { return p.Namespace == word }) {
			kind, workload = workloadKind(word), rest
		}
		if kind == "" {
			names = append(names, name)
			continue
		}
		found := owned["default/"+kind+"/"+workload]
		if found == nil {
			namespaces := 0
			for owner, of := range owned {
				if strings.HasSuffix(owner, "/"+kind+"/"+workload) {
					found = of
					namespaces++
				}
			}
			if namespaces > 1 {
				errs = append(errs, cli.WithHint(fmt.Errorf("%s is ambiguous: several namespaces have one", cli.Quote(name)), "name its namespace with --namespace"))
			}
		}
		if found == nil && !o.ignoreMissing {
			errs = append(errs, cli.WithHint(fmt.Errorf("there is no pod of a %s %s", kind, cli.Quote(workload)), "`crishim pods` lists the pods"))
		}
		names = append(names, found...)
	}
	for _, owner := range slices.Sorted(maps.Keys(o.workloads)) {
		found := owned[owner]
		if found == nil {
			found = []string{o.workloads[owner]}
		}
		names = append(names, found...)
	}
	o.names = append(names, o.listed...)
	return cli.Join(errs...)
}

// workloadKind returns the kind of workload for a resource name of kubectl, such as Deployment for "deploy", or "".
func workloadKind(word string) string {
	word = strings.ToLower(word)
	kinds := map[string]string{
		"deployment": "Deployment", "deploy": "Deployment", "replicaset": "ReplicaSet", "rs": "ReplicaSet", "statefulset": "StatefulSet", "sts": "StatefulSet",
		"daemonset": "DaemonSet", "ds": "DaemonSet", "job": "Job", "cronjob": "CronJob", "cj": "CronJob",
	}
	return cmp.Or(kinds[word], kinds[strings.TrimSuffix(word, "s")])
}

// remove deletes pods. Each element of pods has the pods with the same namespace and name.
func (o *deleteOptions) remove(ctx context.Context, printer *cli.Printer, r *podRuntime, pods [][]*pod.Pod) error {
	return cli.InParallel(printer, pods, cli.MaxConcurrent, func(printer *cli.Printer, all []*pod.Pod) error {
		name := all[0].FullName()
		for _, p := range all {
			if err := deletePod(ctx, printer, r, p, o.grace); err != nil {
				return cli.About(name, err)
			}
		}
		return printer.Say("pod %s: deleted", name)
	})
}

// choose returns the pods that --all or --selector selects, grouped by name. It leaves out pods of other tools and of a
// running sync.
func (o *deleteOptions) choose(ctx context.Context, printer *cli.Printer, r *podRuntime, pods []*pod.Pod) (chosen [][]*pod.Pod, err error) {
	var names []string
	for _, p := range pods {
		owner := r.OwnerOf(ctx, p)
		if owner == (kuberuntime.Owner{}) || owner.Dir != "" && kuberuntime.DirInUse(r.dirs, owner.Dir) {
			continue
		}
		record, err := r.Record(p.UID)
		if err != nil || !o.all && !o.selector.Matches(record.Pod.Labels) {
			continue
		}
		i := slices.Index(names, p.FullName())
		if i < 0 {
			i, names, chosen = len(names), append(names, p.FullName()), append(chosen, nil)
		}
		chosen[i] = append(chosen[i], p)
	}
	if len(names) == 0 {
		printer.Note("no pods to delete")
		return nil, nil
	}
	if o.all && !o.yes {
		ok, err := o.confirm(ctx, fmt.Sprintf("Delete %s with their volumes and logs?", strings.Join(names, ", ")))
		if err != nil {
			return nil, cli.WithHint(err, "`--yes` deletes them without asking")
		}
		if !ok {
			return nil, errors.New("nothing is deleted")
		}
	}
	return chosen, nil
}

// find finds the pods of each name. It returns err, so that nothing is deleted, if a running sync keeps a pod, or if a name
// on the command line is ambiguous or has no pod. missing is the error about pods in manifests that do not exist: the
// other pods are deleted, because apply may have failed after it created some pods.
func (o *deleteOptions) find(ctx context.Context, r *podRuntime, pods []*pod.Pod) (found [][]*pod.Pod, missing, err error) {
	names, err := podNames("delete", o.in, pods, o.names)
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	known := map[string]bool{}
	for _, name := range names {
		one, err := findPods(pods, name)
		switch {
		case len(one) == 0 && err == nil && o.ignoreMissing:
			continue
		case len(one) == 0 && err == nil && len(o.files) > 0:
			missing = cli.Join(missing, noPodNamed(r.dirs, pods, name))
			continue
		case err == nil && len(one) == 0:
			err = noPodNamed(r.dirs, pods, name)
			if strings.Contains(name, "/") && len(podsWithContainer(pods, name)) > 0 {
				err = cli.WithHint(errors.New(err.Error()), "it is a container; `crishim stop %s` and `crishim rm %[1]s` are for those", shellwords.Quote(name))
			}
		case err == nil && known[one[0].UID]: // named twice
			continue
		case len(one) > 1 && len(o.files) == 0:
			err = ambiguous(name, one)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		known[one[0].UID] = true
		errs = append(errs, keptBySync(ctx, r, name, one))
		found = append(found, one)
	}
	return found, missing, cli.Join(errs...)
}

func keptBySync(ctx context.Context, r *podRuntime, name string, pods []*pod.Pod) (err error) {
	for _, p := range pods {
		if directory := r.OwnerOf(ctx, p).Dir; directory != "" && kuberuntime.DirInUse(r.dirs, directory) {
			one := fmt.Errorf("crishim sync %s manages it and would create it again", directory)
			err = cli.Join(err, cli.About(name, cli.WithHint(one, "remove its manifest from that directory")))
		}
	}
	return err
}

func deletePod(ctx context.Context, printer *cli.Printer, r *podRuntime, p *pod.Pod, grace *int64) error {
	unlock, err := lockPod(ctx, printer, r, p.Namespace, p.Name)
	if err != nil {
		return err
	}
	defer unlock()
	pods, err := r.GetPods(ctx, true) // list again: the lock's last holder may have changed pods
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(pods, func(now *pod.Pod) bool { return now.UID == p.UID }); i >= 0 {
		p = pods[i]
	}
	status, err := r.StatusOf(ctx, p)
	if err != nil {
		return err
	}
	if err := r.Remove(ctx, nil, status, grace); err != nil {
		return err
	}
	return cli.RemoveOwnLogs(r.conn, &runtimeapi.PodSandboxMetadata{Namespace: p.Namespace, Name: p.Name, Uid: p.UID})
}

func podsIn(pods []*pod.Pod, in cli.Scope) []*pod.Pod {
	return slices.DeleteFunc(pods, func(p *pod.Pod) bool { return in.Namespace != "" && p.Namespace != in.Namespace })
}

// podNames returns names without the leading word of kubectl's "pod NAME...". It returns an error if a pod has the same
// name as this word, or if the word is another kind, such as "node".
func podNames(verb string, in cli.Scope, pods []*pod.Pod, names []string) ([]string, error) {
	if hint := hintForKind(verb, in, names); hint != "" {
		if found, err := findPods(pods, names[0]); err == nil && len(found) == 0 {
			return nil, cli.WithHint(fmt.Errorf("there is no pod %s", cli.Quote(names[0])), "%s", hint)
		}
	}
	if len(names) < 2 || !slices.Contains(cli.PodTypes, names[0]) {
		return names, nil
	}
	for _, p := range pods {
		if p.Name == names[0] {
			return nil, cli.WithHint(fmt.Errorf("%s can be the name of a pod or the word for pods", cli.Quote(names[0])), "name the pod %s, or leave the word out", p.FullName())
		}
	}
	return names[1:], nil
}

// hintForKind returns a hint for names with another kind, such as "container web" or "node/one".
func hintForKind(verb string, in cli.Scope, names []string) string {
	kind, name, _ := strings.Cut(names[0], "/")
	if name == "" && len(names) > 1 {
		name = names[1]
	}
	pod := fmt.Sprintf("`crishim %s %s` is for a pod", verb, shellwords.Quote(in.InNamespace(name)))
	tools := map[string]string{"describe container": "inspect", "delete container": "rm", "describe image": "inspecti", "delete image": "rmi"}
	switch kind {
	case "node", "nodes", "no":
		return "`crishim info` shows this node's runtime, `crishim doctor` checks it"
	case "container", "containers", "image", "images":
		if kind = strings.TrimSuffix(kind, "s"); name != "" {
			return fmt.Sprintf("`crishim %s %s` is for %ss, %s", tools[verb+" "+kind], shellwords.Quote(name), kind, pod)
		}
	}
	if name != "" && client.IsKindOfKubernetes(kind) {
		return "there are only pods here: " + pod
	}
	return ""
}

// findPods finds pods by namespace/name, by name or by uid. A name without a namespace matches pods in namespace default,
// or else in the only namespace with a pod of this name. pod/NAME is the same as NAME, unless namespace pod has a pod
// NAME. Pods with the same namespace and name are all returned.
func findPods(pods []*pod.Pod, ref string) ([]*pod.Pod, error) {
	pick := func(match func(*pod.Pod) bool) (out []*pod.Pod) {
		for _, p := range pods {
			if match(p) {
				out = append(out, p)
			}
		}
		return out
	}
	if strings.Contains(ref, "/") {
		found := pick(func(p *pod.Pod) bool { return p.FullName() == ref })
		if kind, rest, _ := strings.Cut(ref, "/"); len(found) == 0 && slices.Contains(cli.PodTypes, kind) {
			return findPods(pods, rest)
		}
		return found, nil
	}
	if found := pick(func(p *pod.Pod) bool { return p.FullName() == "default/"+ref }); len(found) > 0 {
		return found, nil
	}
	if found := pick(func(p *pod.Pod) bool { return p.UID == ref }); len(found) > 0 {
		return found, nil
	}
	found := pick(func(p *pod.Pod) bool { return p.Name == ref })
	for _, p := range found {
		if p.Namespace != found[0].Namespace {
			return nil, cli.WithHint(fmt.Errorf("%s is ambiguous: there is one in %s and one in %s", cli.Quote(ref), found[0].Namespace, p.Namespace), "name it %s or %s", found[0].FullName(), p.FullName())
		}
	}
	return found, nil
}

// ambiguous returns the error about a name that several pods have.
func ambiguous(name string, pods []*pod.Pod) error {
	var uids []string
	for _, p := range pods {
		uids = append(uids, p.UID)
	}
	return cli.WithHint(fmt.Errorf("%s is ambiguous: %d pods match", cli.Quote(name), len(pods)), "give one of these UIDs: %s", strings.Join(uids, ", "))
}

// noPodNamed returns the error about an unknown name. If the name is the file name of a manifest with errors, the hint says
// so. Otherwise it suggests the closest name and `crishim pods`.
func noPodNamed(dirs pod.Dirs, pods []*pod.Pod, name string) error {
	err := fmt.Errorf("there is no pod %s", cli.Quote(name))
	for _, wrong := range kuberuntime.InvalidManifests(dirs) {
		if filepath.Base(wrong.File) == name {
			return cli.WithHint(err, "%s is a manifest with errors: `crishim why` shows them", wrong.File)
		}
	}
	var known []string
	for _, p := range pods {
		if strings.Contains(name, "/") || p.Namespace != "default" {
			known = append(known, p.FullName())
		}
		if !strings.Contains(name, "/") {
			known = append(known, p.Name)
		}
	}
	hint := "`crishim pods` lists them"
	if best := suggest.Closest(name, known); best != "" {
		hint = "did you mean " + best + "? " + hint
	}
	return cli.WithHint(err, "%s", hint)
}
