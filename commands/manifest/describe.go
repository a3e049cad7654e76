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

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

type describeOptions struct {
	names []string
	view  cli.View
}

// NewDescribe shows all that is known of pods, as kubectl describe pod would.
func NewDescribe(env *cli.Env) *urfave.Command {
	o := &describeOptions{}
	return &urfave.Command{
		Name:      "describe",
		Usage:     "show pods with their containers, mounts, events and last log lines",
		ArgsUsage: "[NAMESPACE/]NAME...",
		Description: cli.WithExamples("Shows what a pod is and why it does not run. Pods of apply and sync are known with their manifest and their events; of others, what runs is shown.",
			"crishim describe web", "crishim describe -o yaml team/web"),
		Flags:  o.view.Flags(),
		Action: env.Offline(o.check, o.run),
	}
}

func (o *describeOptions) check(env *cli.Env, c *urfave.Context) error {
	o.names = c.Args().Slice()
	return cmp.Or(o.view.Check(env), cli.ArgCount(c, 1, -1))
}

func (o *describeOptions) run(ctx context.Context, env *cli.Env) error {
	r, err := openPodRuntime(ctx, env, podRuntimeOptions{})
	if err != nil {
		return err
	}
	defer r.close()
	pods, err := r.GetPods(ctx, true)
	if err != nil {
		return err
	}
	return cli.Each(o.names, func(name string) error {
		found := podsNamed(pods, name)
		if len(found) == 0 {
			return noPodNamed(name)
		}
		for i, p := range found {
			d, err := r.Describe(ctx, p)
			if err != nil {
				return cli.About(name, err)
			}
			if i > 0 {
				fmt.Fprintln(env.Out)
			}
			if o.view.Format.Kind == output.Name {
				err = env.Say("%s", p.FullName())
			} else {
				err = output.Value(env.Out, d, o.view.Options, func(w io.Writer, _ output.Options) error { return writeDescription(w, d, env.Now()) })
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func writeDescription(w io.Writer, d *kuberuntime.Description, now time.Time) error {
	page := &page{now: now}
	page.pod(d)
	for _, c := range d.View.Containers {
		page.container(d, c)
	}
	page.events(d.Events)
	_, err := io.WriteString(w, page.text.String())
	return err
}

// page is a description being written: lines of "Name:   value", indented by what they
// belong to.
type page struct {
	text   strings.Builder
	now    time.Time
	indent string
}

func (p *page) line(name, format string, args ...any) {
	value := output.Sanitize(fmt.Sprintf(format, args...))
	fmt.Fprintf(&p.text, "%s%-*s %s\n", p.indent, 14-len(p.indent), name+":", value)
}

// optional is a line that is left out when the value is empty.
func (p *page) optional(name, value string) {
	if value != "" {
		p.line(name, "%s", value)
	}
}

func (p *page) pod(d *kuberuntime.Description) {
	p.line("Name", "%s", d.Pod.Name)
	p.line("Namespace", "%s", d.Pod.Namespace)
	p.line("UID", "%s", d.Pod.UID)
	p.optional("Labels", pairs(d.Pod.Labels))
	p.line("Status", "%s", phaseText(d.View))
	var ips []string
	for _, ip := range d.Pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	p.optional("IPs", strings.Join(ips, ", "))
	p.line("QoS", "%s", d.Pod.Status.QOSClass)
	p.optional("Made by", d.Pod.Annotations[pod.FolderAnnotation])
	if !d.Recorded {
		p.line("Manifest", "none (not created by crishim apply or sync)")
	}
	for _, s := range d.Status.Sandboxes {
		p.line("Sandbox", "%s, attempt %d, %s, created %s", s.GetId(), s.GetMetadata().GetAttempt(),
			strings.ToLower(strings.TrimPrefix(s.GetState().String(), "SANDBOX_")), p.ago(time.Unix(0, s.GetCreatedAt())))
	}
}

func (p *page) ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return p.age(t) + " ago"
}

func (p *page) age(t time.Time) string { return max(p.now.Sub(t), 0).Round(time.Second).String() }

func pairs(m map[string]string) string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (p *page) container(d *kuberuntime.Description, c plan.ContainerView) {
	kind := "Container"
	switch {
	case c.Sidecar:
		kind = "Sidecar"
	case c.Init:
		kind = "Init container"
	case c.Ephemeral:
		kind = "Ephemeral container"
	}
	fmt.Fprintf(&p.text, "%s %s:\n", kind, output.Sanitize(c.Container.Name))
	p.indent = "  "
	defer func() { p.indent = "" }()
	p.line("Image", "%s", c.Container.Image)
	p.optional("Command", strings.Join(append(slices.Clone(c.Container.Command), c.Container.Args...), " "))
	p.limits(c.Container)
	last := c.Status
	if why, waiting := d.Waiting[c.Container.Name]; waiting {
		p.line("State", "waiting, %s", strings.TrimSuffix(why.Reason+": "+kuberuntime.OneLine(why.Message), ": "))
	} else if c.Status != nil {
		p.state("State", c.Status)
		last = earlier(d.Status, c.Status)
	}
	if last != nil {
		p.state("Last state", last)
	}
	if c.Status != nil {
		p.line("ID", "%s", c.Status.ID)
		p.optional("Image ID", c.Status.ImageRef)
		p.line("Ready", "%t", c.Ready)
		p.line("Restarts", "%d", c.Status.RestartCount)
		p.optional("Log", c.Status.LogPath)
		for _, m := range c.Status.Mounts {
			mode := "rw"
			if m.GetReadonly() {
				mode = "ro"
			}
			from := m.GetHostPath()
			if image := m.GetImage().GetImage(); image != "" {
				from = "image " + image
			}
			p.line("Mount", "%s from %s (%s)", m.GetContainerPath(), from, mode)
		}
	}
	for _, line := range d.Logs[c.Container.Name] {
		p.line("Last log", "%s", line)
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
	p.optional("Limits", list(c.Resources.Limits))
	p.optional("Requests", list(c.Resources.Requests))
}

func (p *page) state(name string, c *pod.ContainerStatus) {
	text := strings.ToLower(strings.TrimPrefix(c.State.String(), "CONTAINER_"))
	switch {
	case c.Running():
		text += ", started " + p.ago(c.StartedAt)
	case c.Exited():
		text += fmt.Sprintf(" with status %d %s", c.ExitCode, p.ago(c.FinishedAt))
		if c.Reason != "" {
			text += ", " + c.Reason
		}
	}
	if message := kuberuntime.OneLine(c.Message); message != "" {
		text += ": " + message
	}
	p.line(name, "%s", text)
}

// earlier is the attempt before the newest one.
func earlier(s *pod.Status, newest *pod.ContainerStatus) *pod.ContainerStatus {
	for _, c := range s.Containers {
		if c.Name == newest.Name && c.ID != newest.ID {
			return c
		}
	}
	return nil
}

// shownEvents is how many events a description ends with.
const shownEvents = 25

func (p *page) events(events []kuberuntime.Event) {
	if len(events) == 0 {
		return
	}
	p.text.WriteString("Events:\n")
	folded := kuberuntime.FoldEvents(events)
	for _, e := range folded[max(len(folded)-shownEvents, 0):] {
		kind, reason := "Normal", e.Reason
		if e.Warning {
			kind = "Warning"
		}
		if e.Count > 1 {
			reason += fmt.Sprintf(" (x%d)", e.Count)
		}
		text := fmt.Sprintf("%-8s %-8s %-20s %s", p.age(e.Time), kind, reason, strings.TrimSpace(e.Container+" "+e.Message))
		p.text.WriteString("  " + output.Sanitize(text) + "\n")
	}
}
