package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/diagnose"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

type whyOptions struct {
	names    []string
	in       cli.Scope
	view     cli.View
	exitCode bool
}

func NewWhy(in *cli.Invocation) *cli.Verb {
	o := &whyOptions{}
	var codes []string
	for _, code := range diagnose.Codes() {
		codes = append(codes, string(code))
	}
	return &cli.Verb{
		Usage:     "Explain why pods and containers do not run or are not ready",
		ArgsUsage: "[POD|CONTAINER...]",
		Args:      cli.AnyOf(cli.CompletePods, cli.CompleteContainers()),
		Description: cli.WithExamples("Prints the reason, the evidence and the next command to run; one line if all is well. "+
			"\"Probably\" marks a reason without proof. Output of containers is not used as evidence. Without arguments, lists all problems of the node, the worst first.\n\n"+
			"The codes in -o json never change: "+strings.Join(codes, ", ")+".",
			"crishim why", "crishim why web", "crishim why -o json web"),
		Flags: append(o.view.Flags(), o.in.NamespaceFlag(),
			cli.BoolFlag(&o.exitCode, "exit-code", "Exit with status 1 if there is an error; warnings and notes do not count")),
		Check: o.check,
		Run:   o.run,
	}
}

func (o *whyOptions) check(in *cli.Invocation, c *urfave.Context) error {
	o.names = c.Args().Slice()
	return o.view.Check(in)
}

// whyTarget is a pod, or one container of it.
type whyTarget struct {
	ref       string
	pod       *pod.Pod
	container string // "": all
}

func (o *whyOptions) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	conn, collector, err := openCollector(ctx, connector)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer collector.Close()
	pods, err := collector.Pods(ctx)
	if err != nil {
		return err
	}
	pods = podsIn(pods, o.in)
	names := o.names
	if len(names) > 0 {
		if names, err = podNames("why", o.in, pods, names); err != nil {
			return err
		}
	}
	var targets []whyTarget
	missing := cli.Each(names, func(name string) error {
		found, err := whyTargets(pod.DefaultDirs(connector.LookupEnv), pods, name)
		targets = append(targets, found...)
		return err
	})
	if len(names) > 0 {
		if pods = nil; len(targets) == 0 {
			return missing
		}
	}
	for _, t := range targets {
		if !slices.Contains(pods, t.pod) {
			pods = append(pods, t.pod)
		}
	}
	facts, err := collector.Collect(ctx, pods...)
	if err != nil {
		return cli.Join(err, missing)
	}
	warnOf(printer, facts)
	report := diagnose.Report{Findings: []diagnose.Finding{}, Unread: facts.Node.Unread}
	if len(targets) == 0 {
		report.Findings = append(report.Findings, diagnose.Explain(facts)...)
	}
	for _, t := range targets {
		report.Findings = append(report.Findings, t.findings(facts)...)
	}
	if wrong := report.Errors(); o.exitCode && wrong > 0 {
		missing = cli.Join(missing, fmt.Errorf("not as it should be: errors found: %d", wrong))
	}
	if o.view.Format.Kind == output.Name {
		return cli.Join(cli.Each(report.Names(), func(name string) error { return printer.Say("%s", name) }), missing)
	}
	return cli.Join(missing, output.Value(printer.Out, report, o.view.Options, func(w io.Writer, options output.Options) error {
		p := &page{now: options.Now, width: options.Width, paint: options.Paint}
		if len(targets) == 0 {
			p.node(facts, report)
		}
		for i, t := range targets {
			if i > 0 {
				p.text.WriteString("\n")
			}
			p.why(facts, t)
		}
		_, err := io.WriteString(w, p.text.String())
		return err
	}))
}

func warnOf(printer *cli.Printer, f *diagnose.Facts) {
	for _, err := range f.Failed {
		printer.Warn("%w", err)
	}
}

// whyTargets resolves ref to the pods of this name, else to the containers of this name, else to the pod or container with
// an id that begins with ref.
func whyTargets(dirs pod.Dirs, pods []*pod.Pod, ref string) (out []whyTarget, err error) {
	found, err := findPods(pods, ref)
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		out = append(out, whyTarget{ref: ref, pod: p})
	}
	if len(out) > 0 {
		return out, nil
	}
	for _, p := range podsWithContainer(pods, ref) {
		out = append(out, whyTarget{ref: ref, pod: p, container: ref[strings.LastIndexByte(ref, '/')+1:]})
	}
	if len(out) > 0 {
		return out, nil
	}
	for _, p := range podsWithID(pods, ref) {
		t := whyTarget{ref: ref, pod: p}
		for _, c := range p.Containers {
			if strings.HasPrefix(c.GetId(), ref) {
				t.container = nameOf(c)
			}
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		err := noPodNamed(dirs, pods, ref)
		return nil, cli.WithHint(errors.New(strings.Replace(err.Error(), "no pod", "no pod or container", 1)), "%s", cli.HintOf(err))
	}
	return out, nil
}

func nameOf(c *runtimeapi.Container) string {
	if name := c.GetMetadata().GetName(); name != "" {
		return name
	}
	return c.GetLabels()[kube.LabelContainerName]
}

// findings returns the findings about a target and its pod.
func (t whyTarget) findings(f *diagnose.Facts) []diagnose.Finding {
	p := f.Of(t.pod)
	return slices.DeleteFunc(diagnose.ExplainPod(f, p), func(one diagnose.Finding) bool {
		return t.container != "" && one.Container != "" && one.Container != t.container
	})
}

func (p *page) why(f *diagnose.Facts, t whyTarget) {
	found := t.findings(f)
	d := f.Of(t.pod).Description
	name, state := t.pod.FullName(), diagnose.Summary(d)
	if t.container != "" {
		name += "/" + t.container
		for _, c := range d.View.Containers {
			if c.Container.Name == t.container {
				state = diagnose.Word(d, c)
			}
		}
	}
	if len(found) == 0 {
		p.write("", name+": "+state+"; nothing is wrong")
		return
	}
	p.heading(output.Sanitize(name + ": " + state))
	unread := false
	for _, one := range found {
		p.finding(one, "", true)
		unread = unread || one.Probable
	}
	if unread {
		for _, source := range f.Node.Unread {
			p.write("", "could not be read: "+source)
		}
	}
}

func (p *page) node(f *diagnose.Facts, r diagnose.Report) {
	if len(r.Findings) == 0 {
		text := "there are no pods on this node"
		if n := len(f.Pods); n > 0 {
			text = "nothing is wrong with this node's " + output.Count(n, "pod")
		}
		p.write("", text)
		return
	}
	for _, group := range diagnose.Groups(r.Findings) {
		place := group[0].Place()
		if more := len(group) - 1; more > 0 {
			place += fmt.Sprintf(" and %d more", more)
		}
		p.finding(group[0], place+": ", false)
	}
}

// finding writes the text and the next commands. If whole is false, it omits the evidence and the log, and writes only the
// first command.
func (p *page) finding(f diagnose.Finding, before string, whole bool) {
	tone := map[diagnose.Severity]output.Tone{diagnose.Error: output.Bad, diagnose.Warning: output.Warn, diagnose.Note: output.Faint}[f.Severity]
	lines := &page{width: p.width}
	lines.write("  ", before+f.Text)
	text := strings.TrimPrefix(lines.text.String(), "  ")
	first, rest, _ := strings.Cut(text, "\n")
	if p.paint != nil {
		first = p.paint(tone, first)
	}
	if p.text.Len() > 0 && whole {
		p.text.WriteString("\n")
	}
	p.text.WriteString(first + "\n" + rest)
	if whole {
		for _, line := range f.Evidence {
			p.write("  - ", line)
		}
		for _, line := range f.Log {
			p.write("  | ", line)
		}
	}
	for i, line := range f.Next {
		if i > 0 && !whole {
			break
		}
		before := "  next: "
		if i > 0 {
			before = "        "
		}
		p.text.WriteString(before + output.Sanitize(line) + "\n") // not wrapped, so that the command line can be copied
	}
}
