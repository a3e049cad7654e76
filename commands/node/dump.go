package node

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/node/bundle"
	"github.com/crishim/crishim/internal/diagnose"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type dumpOptions struct {
	output     string // "-": standard output
	logs       string
	tail       int64
	keep       bundle.Keep
	keepConfig bool
	quiet      bool
	title      string
	version    string // of crishim
}

// NewDump returns the verb that creates a bundle for a bug report.
func NewDump(in *cli.Invocation) *cli.Verb {
	o := &dumpOptions{logs: bundle.LogsUnhealthy, tail: 50, version: in.OwnVersion()}
	return &cli.Verb{
		Usage: "Collect data for a bug report in one archive",
		Description: cli.WithExamples("Writes a .tar.gz, readable only by you, with bundle.json and an index.html that needs no network. If a part of the\n"+
			"node does not answer in time, the archive contains the error instead. dump changes nothing.\n\n"+
			"The archive contains only data that is known to be harmless: names, states, times, exit statuses, resources, paths of mounts, ports, names of environment variables, the first word of\n"+
			"a command, keys of labels and annotations, versions, conditions, the runtime's own error texts, and known keys of configuration files.\n"+
			"Logs contain the unchanged output of containers, by default the last lines of each container that failed or was restarted.\n"+
			"Text that may quote a container or a manifest, such as the messages of events, is added by --logs all only.",
			"crishim dump", "crishim dump --logs none", "crishim dump --logs all --tail 1000 -o node1.tar.gz", "crishim dump -o - | ssh laptop 'cat > node1.tar.gz'"),
		Flags: []urfave.Flag{
			cli.StringFlag(&o.output, "output", "Write to `FILE`, or - for stdout (default crishim-dump-HOST-TIME.tar.gz)", "o"),
			cli.WordFlag(&o.logs, []string{bundle.LogsAll, bundle.LogsUnhealthy, bundle.LogsNone}, "logs", "Add logs of `WHICH` containers: all, unhealthy, none (default unhealthy)"),
			cli.IntFlag(&o.tail, "tail", "Add the last `N` lines of each log (default 50)"),
			cli.BoolFlag(&o.keep.Args, "keep-args", "Add the arguments of containers"),
			cli.BoolFlag(&o.keep.Env, "keep-env", "Add the values of environment variables"),
			cli.BoolFlag(&o.keepConfig, "keep-config", "Add the unchanged configuration files of the runtime, CNI and crishim"),
			cli.BoolFlag(&o.quiet, "quiet", "Do not show progress", "q"),
		},
		Check: o.check,
		Run:   o.run,
	}
}

func (o *dumpOptions) check(in *cli.Invocation, c *urfave.Context) error {
	if err := cli.ArgCount(c, 0, 0); err != nil {
		return err
	}
	if o.tail < 1 {
		return cli.Invalid("tail", o.tail, "must be at least 1")
	}
	host, _ := os.Hostname()
	o.title = "crishim-dump-" + bundle.UnsafeInName.ReplaceAllString(cmp.Or(host, "node"), "-") + "-" + in.Now().UTC().Format("20060102-150405")
	o.output = cmp.Or(o.output, o.title+".tar.gz")
	return cli.CheckOutput(in.OutTerminal, o.output)
}

func (o *dumpOptions) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	r := &bundle.Report{Title: o.title, Time: printer.Now().UTC(), Crishim: o.version}
	err := cli.WriteOutput(printer.Out, o.output, func(to io.Writer) error {
		if err := o.collect(ctx, printer, connector, r); err != nil {
			return err
		}
		return r.Write(to)
	})
	if errors.Is(err, syscall.ENOSPC) {
		err = cli.WithHint(err, "`crishim dump -o - | ssh HOST 'cat > dump.tar.gz'` needs no room here")
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(r.Files, func(f bundle.File) bool { return strings.HasPrefix(f.Name, "logs/") }) {
		printer.Note("crishim: no logs are in it")
	} else {
		printer.Note("crishim: logs hold whatever containers print: look at them before you send this, or use --logs none")
	}
	for _, added := range r.Added {
		printer.Note("crishim: added: %s", added)
	}
	for _, part := range r.Parts {
		if part.Err != nil {
			printer.Warn("%s: missing or not whole: %w", part.Part, part.Err)
		}
	}
	if o.output == "-" {
		return nil
	}
	return printer.Say("%s", o.output)
}

// collect collects all parts.
func (o *dumpOptions) collect(ctx context.Context, printer *cli.Printer, connector *cli.Connector, r *bundle.Report) error {
	added := func(is bool, text string) {
		if is {
			r.Added = append(r.Added, text)
		}
	}
	added(o.logs == bundle.LogsAll, "the logs of all containers, and sentences that may quote containers and manifests (--logs all)")
	added(o.keep.Args, "the arguments of containers (--keep-args)")
	added(o.keep.Env, "the values of environment variables (--keep-env)")
	added(o.keepConfig, "whole configuration files (--keep-config)")
	done := func(p bundle.Result) {
		if printer.ErrTerminal && !o.quiet {
			printer.Note("%-18s %5.1f s", p.Part, p.Seconds)
		}
	}
	var conn *client.Conn
	const connectLimit = 35 * time.Second // the embedded dockershim may take 30 s to start
	err := r.Collect(ctx, []bundle.Part{{Name: "version", Limit: connectLimit, Collect: func(ctx context.Context) (func(*bundle.Report), error) {
		if _, err := connector.ClientOptions(); err != nil { // omitted: it may quote a configuration file
			return nil, errors.New("the settings are invalid: `crishim doctor` shows why")
		}
		c, err := connector.Connect(ctx)
		return func(r *bundle.Report) {
			if conn = c; conn != nil {
				v := conn.Version
				r.Endpoint, r.Runtime = bundle.Bare(conn.RuntimeEndpoint), v.GetRuntimeName()+" "+v.GetRuntimeVersion()+", CRI "+v.GetRuntimeApiVersion()
			}
		}, err
	}}}, done)
	if err != nil {
		return err
	}
	parts := []bundle.Part{{Name: "doctor", Collect: func(ctx context.Context) (func(*bundle.Report), error) {
		findings := examine(ctx, connector)[1:] // omits the check of the settings
		return func(r *bundle.Report) { r.Doctor = findings }, nil
	}}}
	if conn != nil {
		defer conn.Close()
		n := &bundle.Node{Conn: conn, Logs: o.logs, Tail: int(o.tail), Keep: o.keep}
		conn.LimitCalls(5 * time.Second)
		parts = append(append(parts, n.Parts()...), bundle.Part{Name: "why", Limit: time.Minute, Collect: func(ctx context.Context) (func(*bundle.Report), error) {
			return o.why(ctx, connector, conn)
		}})
	}
	m := bundle.Machine{KeepConfig: o.keepConfig}
	if config, err := connector.Config(); err == nil {
		m.Files = slices.DeleteFunc([]string{config.Path, config.ShimConfig}, func(path string) bool { return path == "" })
	}
	// Otherwise the runtime is on another machine, or crishim runs in a container and sees only the container's files.
	if conn == nil || conn.SeesHost() {
		parts = append(parts, m.Parts()...)
	}
	return r.Collect(ctx, parts, done)
}

// eventsSince is how far back events are read.
const eventsSince = 15 * time.Minute

// why collects the reasons why pods do not run, the events of pods from apply and sync, and the events of the engine
// behind crishim's dockershim.
func (o *dumpOptions) why(ctx context.Context, connector *cli.Connector, conn *client.Conn) (func(*bundle.Report), error) {
	if conn.Remote() != "" {
		return nil, errors.New("the runtime is not on this host")
	}
	c, err := diagnose.Open(ctx, conn, diagnose.Options{Dirs: pod.DefaultDirs(connector.LookupEnv), Now: connector.Now})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	pods, err := c.Pods(ctx)
	if err != nil {
		return nil, err
	}
	facts, err := c.Collect(ctx, pods...)
	if err != nil {
		return nil, err
	}
	var findings []bundle.Finding
	for _, f := range diagnose.Explain(facts) {
		if o.logs != bundle.LogsAll && f.MayQuote() {
			f.Text = ""
		}
		findings = append(findings, bundle.Finding{Severity: string(f.Severity), Code: string(f.Code), Where: f.Where(), Time: f.Time, Text: f.Text})
	}
	var events []bundle.Event
	add := func(e bundle.Event, namespace, pod, container string) {
		if facts.At.Sub(e.Time) < eventsSince {
			e.Time, e.Where = e.Time.UTC(), strings.TrimSuffix(namespace+"/"+pod+"/"+container, "/")
			events = append(events, e)
		}
	}
	for _, p := range facts.Pods {
		for _, e := range p.Events {
			if o.logs != bundle.LogsAll {
				e.Message = ""
			}
			add(bundle.Event{Time: e.Time, Reason: e.Reason, Message: e.Message}, e.Namespace, e.Pod, e.Container)
		}
		for _, e := range p.Journal {
			add(bundle.Event{Time: e.Time, Reason: e.Action, Attempt: e.Attempt, ExitCode: e.ExitCode, Signal: e.Signal}, e.Namespace, e.Pod, e.Container)
		}
	}
	slices.SortStableFunc(events, func(a, b bundle.Event) int { return a.Time.Compare(b.Time) })
	return func(r *bundle.Report) { r.Findings, r.Events = findings, events }, nil
}
