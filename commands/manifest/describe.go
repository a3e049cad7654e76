package manifest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/diagnose"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

type describeOptions struct {
	names []string
	in    cli.Scope
	view  cli.View
}

func NewDescribe(in *cli.Invocation) *cli.Verb {
	o := &describeOptions{}
	return &cli.Verb{
		Usage:     "Show pods with their containers, mounts, events and last log lines",
		ArgsUsage: "POD...",
		Args:      cli.CompletePods,
		Description: cli.WithExamples("Shows the state of a pod, its containers and mounts, and why it does not run or is not ready. For pods of apply and sync, also shows their manifest and events.",
			"crishim describe web", "crishim describe pod web", "crishim describe -o yaml team/web"),
		Flags: append(o.view.Flags(), o.in.NamespaceFlag()),
		Check: o.check,
		Run:   o.run,
	}
}

func (o *describeOptions) check(in *cli.Invocation, c *urfave.Context) error {
	o.names = c.Args().Slice()
	return cmp.Or(o.view.Check(in), cli.ArgCount(c, 1, -1))
}

func (o *describeOptions) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	conn, facts, err := openCollector(ctx, connector)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer facts.Close()
	pods, err := facts.Pods(ctx)
	if err != nil {
		return err
	}
	pods = podsIn(pods, o.in)
	names, err := podNames("describe", o.in, pods, o.names)
	if err != nil {
		return err
	}
	shown := 0
	return cli.Each(names, func(name string) error {
		found, err := findPods(pods, name)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			found = podsWithID(pods, name)
		}
		if len(found) == 0 && strings.Contains(name, "/") {
			found = podsWithContainer(pods, name)
		}
		if len(found) == 0 {
			return noPodNamed(pod.DefaultDirs(connector.LookupEnv), pods, name)
		}
		for _, p := range found {
			f, err := facts.Collect(ctx, p)
			if err != nil {
				return cli.About(name, err)
			}
			warnOf(printer, f)
			d := f.Pods[0].Description
			if shown++; shown > 1 && o.view.Format.Kind == output.YAML {
				fmt.Fprintln(printer.Out, "---")
			}
			if o.view.Format.Kind == output.Name {
				err = printer.Say("%s", p.FullName())
			} else {
				err = output.Value(printer.Out, d, o.view.Options, func(w io.Writer, options output.Options) error {
					if shown > 1 {
						fmt.Fprintln(w)
					}
					return writeDescription(w, f, options)
				})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// podsWithID finds the pod with a sandbox or container whose id begins with ref. If several pods match, it returns nil.
func podsWithID(pods []*pod.Pod, ref string) (found []*pod.Pod) {
	for _, p := range pods {
		if slices.ContainsFunc(p.Sandboxes, func(s *runtimeapi.PodSandbox) bool { return strings.HasPrefix(s.GetId(), ref) }) ||
			slices.ContainsFunc(p.Containers, func(c *runtimeapi.Container) bool { return strings.HasPrefix(c.GetId(), ref) }) {
			found = append(found, p)
		}
	}
	if len(found) > 1 {
		return nil
	}
	return found
}

// podsWithContainer finds the pods that ref names as CONTAINER, POD/CONTAINER or NAMESPACE/POD/CONTAINER.
func podsWithContainer(pods []*pod.Pod, ref string) (found []*pod.Pod) {
	parts := strings.Split(ref, "/")
	last := len(parts) - 1
	for _, p := range pods {
		named := last == 0 || last == 1 && p.Name == parts[0] || last == 2 && p.FullName() == parts[0]+"/"+parts[1]
		if named && slices.ContainsFunc(p.Containers, func(c *runtimeapi.Container) bool { return nameOf(c) == parts[last] }) {
			found = append(found, p)
		}
	}
	return found
}

func writeDescription(w io.Writer, f *diagnose.Facts, o output.Options) error {
	p := &page{now: o.Now, width: o.Width, paint: o.Paint}
	d := f.Pods[0].Description
	p.summary(d, diagnose.ExplainPod(f, f.Pods[0]))
	p.pod(d, f.Pods[0].Owner)
	for _, c := range d.View.Containers {
		var args []string // the container's arguments from the runtime, if the manifest is unknown
		if !d.Recorded && c.Status != nil {
			if details := f.Pods[0].Containers[c.Status.ID]; details != nil {
				args = details.Args
			}
		}
		p.container(d, c, args)
	}
	p.events(d.Events)
	_, err := io.WriteString(w, p.text.String())
	return err
}

// page is a text of lines "Name:   value", indented by level.
type page struct {
	text   strings.Builder
	now    time.Time
	width  int                              // of the terminal; 0: values are not wrapped
	paint  func(output.Tone, string) string // nil: there are no colours
	indent string
}

const valueColumn = 15

func (p *page) line(name, format string, args ...any) {
	p.painted("", name, "", format, args...)
}

// painted writes a line with colours for the name and the first word of the value.
func (p *page) painted(nameTone output.Tone, name string, valueTone output.Tone, format string, args ...any) {
	before, value := fmt.Sprintf("%s%-*s ", p.indent, valueColumn-1-len(p.indent), name+":"), fmt.Sprintf(format, args...)
	row := &page{width: p.width}
	row.write(before, value)
	text := row.text.String()
	if rest, ok := strings.CutPrefix(text, before); ok && p.paint != nil {
		word := rest[:strings.IndexAny(rest, ",:\n")]
		text = strings.Replace(before, name+":", p.paint(nameTone, name+":"), 1) + p.paint(valueTone, word) + rest[len(word):]
	}
	p.text.WriteString(text)
}

// write writes before and value, and indents further lines to the column of value.
func (p *page) write(before, value string) {
	lines := []string{output.Sanitize(value)}
	if room := p.width - len(before); p.width > 0 && room > 20 {
		lines = output.Wrap(lines[0], room)
	}
	for _, line := range lines {
		p.text.WriteString(strings.TrimRight(before+line, " ") + "\n")
		before = strings.Repeat(" ", len(before))
	}
}

func (p *page) heading(text string) {
	if p.paint != nil {
		text = p.paint(output.Header, text)
	}
	p.text.WriteString(text + "\n")
}

// optional omits the line if the value is empty.
func (p *page) optional(name, value string) {
	if value != "" {
		p.line(name, "%s", value)
	}
}

func (p *page) summary(d *kuberuntime.Description, found []diagnose.Finding) {
	p.line("Pod", "%s", d.Pod.Namespace+"/"+d.Pod.Name)
	tone := output.Good
	if len(found) > 0 {
		tone = output.Bad
	}
	p.painted("", "State", tone, "%s", diagnose.Summary(d))
	for _, c := range found {
		p.painted(output.Bad, "Cause", "", "%s", c.Text)
		for _, line := range c.Log {
			p.write(strings.Repeat(" ", valueColumn)+"| ", line)
		}
	}
}

func (p *page) pod(d *kuberuntime.Description, owner kuberuntime.Owner) {
	var ips []string
	for _, ip := range d.Pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	p.optional("IPs", strings.Join(ips, ", "))
	p.line("Made by", "%s", madeBy(d, owner))
	if owner := metav1.GetControllerOf(d.Pod); owner != nil {
		p.optional("Controlled By", owner.Kind+"/"+owner.Name)
	}
	p.optional("Labels", pairs(d.Pod.Labels))
	p.line("UID", "%s", d.Pod.UID)
	p.line("QoS", "%s", d.Pod.Status.QOSClass)
	for _, s := range d.Status.Sandboxes {
		state := strings.ToLower(strings.TrimPrefix(s.GetState().String(), "SANDBOX_"))
		p.line("Sandbox", "%.13s %s, attempt %d, created %s", s.GetId(), state, s.GetMetadata().GetAttempt(), diagnose.Ago(p.now, time.Unix(0, s.GetCreatedAt())))
	}
}

// madeBy names the process that created a pod, and mentions if the process has ended.
func madeBy(d *kuberuntime.Description, owner kuberuntime.Owner) string {
	over := d.View.Phase == v1.PodSucceeded || d.View.Phase == v1.PodFailed
	switch {
	case d.Status.Sandbox().GetAnnotations()[kube.AnnotationRun] != "":
		return "crishim run"
	case !d.Recorded:
		return owner.String() + ", so that its manifest is not known"
	case d.Managed || over:
		return owner.String()
	case owner.Dir != "":
		return owner.String() + ", which does not run: it is not probed or restarted any more"
	}
	return owner.String() + ", which has ended: it is not probed or restarted any more"
}

func pairs(m map[string]string) string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// maxCommand is the maximum length of a command in a description; -o yaml has the whole command.
const maxCommand = 300

// ownMounts are in every container of apply and sync.
var ownMounts = []string{"/etc/hosts", v1.TerminationMessagePathDefault}

func (p *page) container(d *kuberuntime.Description, c plan.ContainerView, args []string) {
	kind := "Container"
	switch {
	case c.Sidecar:
		kind = "Sidecar"
	case c.Init:
		kind = "Init container"
	case c.Ephemeral:
		kind = "Ephemeral container"
	}
	p.heading(kind + " " + output.Sanitize(c.Container.Name) + ":")
	p.indent = "  "
	defer func() { p.indent = "" }()
	image := c.Container.Image
	if c.Status != nil {
		if id := cmp.Or(c.Status.ImageID, c.Status.ImageRef); id != "" && id != image {
			image += fmt.Sprintf(" (%.13s)", id[strings.LastIndexByte(id, ':')+1:])
		}
	}
	p.line("Image", "%s", image)
	command := strings.Join(slices.Concat(c.Container.Command, c.Container.Args, args), " ")
	if len(command) > maxCommand {
		command = strings.ToValidUTF8(command[:maxCommand], "") + " ..." // the end may be inside a character
	}
	p.optional("Command", command)
	p.limits(c.Container)
	p.painted("", "State", output.StateTone(diagnose.Word(d, c), c.Ready || c.Init && !c.Sidecar), "%s", diagnose.State(d, c, p.now))
	attempts := d.Status.Attempts(c.Container.Name)
	if waiting := d.Waiting[c.Container.Name]; waiting.Reason == "" || !d.Managed {
		attempts = attempts[min(len(attempts), 1):]
	}
	if len(attempts) > 0 {
		p.line("Last state", "%s", diagnose.Ended(attempts[0], p.now))
	}
	p.probes(d, c)
	if c.Status == nil {
		return
	}
	p.line("Restarts", "%d", c.Status.RestartCount)
	p.line("ID", "%.13s", c.Status.ID)
	if !c.Status.StartedAt.IsZero() {
		p.optional("Log", c.Status.LogPath)
	}
	for _, m := range c.Status.Mounts {
		mode := "rw"
		if m.GetReadonly() {
			mode = "ro"
		}
		from := m.GetHostPath()
		if image := m.GetImage().GetImage(); image != "" {
			from = "image " + image
		}
		if !d.Recorded || !slices.Contains(ownMounts, m.GetContainerPath()) {
			p.line("Mount", "%s from %s (%s)", m.GetContainerPath(), from, mode)
		}
	}
}

func (p *page) limits(c *v1.Container) {
	list := func(r v1.ResourceList) string {
		m := map[string]string{}
		for name, quantity := range r {
			m[string(name)] = quantity.String()
		}
		return pairs(m)
	}
	limits, requests := list(c.Resources.Limits), list(c.Resources.Requests)
	p.optional("Limits", limits)
	if requests != limits {
		p.optional("Requests", requests)
	}
}

// probes writes a line for a container with a readiness or startup probe.
func (p *page) probes(d *kuberuntime.Description, c plan.ContainerView) {
	if c.Container.ReadinessProbe == nil && c.Container.StartupProbe == nil {
		return
	}
	text := "no"
	if c.Ready {
		text = "yes"
	}
	if c.Status.Running() && !d.Managed {
		text += ", by one attempt just now"
	}
	p.line("Ready", "%s", text)
}

// shownEvents limits a description to the last events.
const shownEvents = 15

func (p *page) events(events []kuberuntime.Event) {
	if len(events) == 0 {
		return
	}
	p.heading("Events:")
	folded := kuberuntime.FoldEvents(events)
	folded = folded[max(len(folded)-shownEvents, 0):]
	reasons := 0
	for i, e := range folded {
		folded[i].Reason = output.Sanitize(e.Reason) // read from a file that another user may have written
		if e.Count > 1 {
			folded[i].Reason += fmt.Sprintf(" (x%d)", e.Count)
		}
		reasons = max(reasons, len(folded[i].Reason))
	}
	for _, e := range folded {
		kind := "Normal"
		if e.Warning {
			kind = "Warning"
		}
		message := e.Message
		if e.Container != "" {
			message = e.Container + ": " + message
		}
		row := &page{width: p.width}
		row.write(fmt.Sprintf("  %-5s %-7s %-*s ", duration.HumanDuration(max(p.now.Sub(e.Time), 0)), kind, reasons, e.Reason), message)
		text := row.text.String()
		if p.paint != nil && e.Warning {
			text = strings.Replace(text, kind, p.paint(output.Warn, kind), 1)
		}
		p.text.WriteString(text)
	}
}
