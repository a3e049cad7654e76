package node

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/node/bundle"
	"github.com/crishim/crishim/diagnose"
	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type dumpOptions struct {
	output     string // "-": standard output
	logs       string
	tail       int64
	keepArgs   bool
	keepEnv    bool
	keepConfig bool
	quiet      bool
	title      string
}

// NewDump returns the verb that makes a bundle for the report of a fault.
func NewDump(env *cli.Env) *cli.Verb {
	o := &dumpOptions{logs: bundle.LogsUnhealthy, tail: 50}
	return &cli.Verb{
		Name:  "dump",
		Usage: "collect what a bug report needs in one archive",
		Description: cli.WithExamples("Writes a .tar.gz, readable by you alone, with bundle.json and an index.html that opens without a network. A part that does not answer in time is\n"+
			"in it with its error, so that it works on a node of which half is broken. Nothing is changed.\n\n"+
			"It tells what is known to be harmless: names, states, times, exit statuses, resources, paths of mounts, ports, names of environment variables, the first word of\n"+
			"a command, keys of labels and annotations, versions, conditions, the runtime's own error texts, and known keys of configuration files.\n"+
			"Logs hold whatever containers print: by default the last lines of those that did not end well or were restarted, as they are.",
			"crishim dump", "crishim dump --logs none", "crishim dump --logs all --tail 1000 -o node1.tar.gz", "crishim dump -o - | ssh laptop 'cat > node1.tar.gz'"),
		Flags: []urfave.Flag{
			cli.StringFlag(&o.output, "output", "write to `FILE`, - for standard output (default crishim-dump-HOST-TIME.tar.gz)", "o"),
			cli.WordFlag(&o.logs, []string{bundle.LogsAll, bundle.LogsUnhealthy, bundle.LogsNone}, "logs", "logs of `WHICH` containers: all, unhealthy, none (default unhealthy)"),
			cli.IntFlag(&o.tail, "tail", "the last `N` lines of each log (default 50)", "n"),
			cli.BoolFlag(&o.keepArgs, "keep-args", "add the arguments of containers"),
			cli.BoolFlag(&o.keepEnv, "keep-env", "add the values of environment variables"),
			cli.BoolFlag(&o.keepConfig, "keep-config", "add the configuration files of the runtime, CNI and crishim as they are"),
			cli.BoolFlag(&o.quiet, "quiet", "do not show progress", "q"),
		},
		Action: env.Offline(o.check, o.run),
	}
}

// notInName are characters that the name of a file should not have.
var notInName = lazyregexp.New(`[^A-Za-z0-9.-]+`)

func (o *dumpOptions) check(env *cli.Env, c *urfave.Context) error {
	if err := cli.ArgCount(c, 0, 0); err != nil {
		return err
	}
	if o.tail < 1 {
		return cli.Invalid("tail", o.tail, "must be at least 1")
	}
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	o.title = "crishim-dump-" + notInName.ReplaceAllString(host, "-") + "-" + env.Now().UTC().Format("20060102-150405")
	switch {
	case o.output == "":
		o.output = o.title + ".tar.gz"
	case o.output == "-" && env.OutTerminal:
		return cli.Usagef("an archive is nothing for a terminal: use -o FILE, or redirect standard output")
	case o.output != "-" && cli.IsDir(o.output):
		return cli.Invalid("output", o.output, "is a directory")
	}
	if dir := filepath.Dir(o.output); o.output != "-" && !cli.IsDir(dir) {
		return cli.Invalid("output", o.output, "there is no directory "+dir)
	}
	return nil
}

func (o *dumpOptions) run(ctx context.Context, env *cli.Env) error {
	var file *cli.OutputFile
	var to io.Writer = struct{ io.Writer }{env.Out}
	if o.output != "-" { // first, as without it all the rest is for nothing
		var err error
		if file, err = cli.CreateOutput(o.output); err != nil {
			return err
		}
		defer file.Close()
		to = file
	}
	r, err := o.collect(ctx, env)
	if err != nil {
		return err
	}
	if err = r.Write(to); err == nil && file != nil {
		err = file.Commit()
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = cli.WithHint(err, "`crishim dump -o - | ssh HOST 'cat > dump.tar.gz'` needs no room here")
	}
	if err != nil {
		return err
	}
	if o.logs == bundle.LogsNone {
		env.Note("crishim: no logs are in it")
	} else {
		env.Note("crishim: logs hold whatever containers print: look at them before you send this, or use --logs none")
	}
	for _, added := range r.Added {
		env.Note("crishim: added: %s", added)
	}
	var failed []string
	for _, part := range r.Parts {
		if part.Error != "" {
			failed = append(failed, part.Part)
		}
	}
	if len(failed) > 0 {
		env.Warn("%d of %d parts are missing or not whole, index.html says why: %s", len(failed), len(r.Parts), strings.Join(failed, ", "))
	}
	if file == nil {
		return nil
	}
	return env.Say("%s", o.output)
}

// collect collects all parts.
func (o *dumpOptions) collect(ctx context.Context, env *cli.Env) (*bundle.Report, error) {
	r := &bundle.Report{Title: o.title, Time: bundle.Time(env.Now().UTC().Format(time.RFC3339)), Crishim: cli.OwnVersion(env)}
	for _, added := range []struct {
		is   bool
		text string
	}{
		{o.logs == bundle.LogsAll, "the logs of all containers, and messages of events (--logs all)"},
		{o.keepArgs, "the arguments of containers (--keep-args)"},
		{o.keepEnv, "the values of environment variables (--keep-env)"},
		{o.keepConfig, "whole configuration files (--keep-config)"},
	} {
		if added.is {
			r.Added = append(r.Added, added.text)
		}
	}
	n := &bundle.Node{Connect: env.Connect, Now: env.Now, Logs: o.logs, Tail: int(o.tail), Keep: bundle.Keep{Args: o.keepArgs, Env: o.keepEnv}}
	if options, err := env.ClientOptions(false); err == nil {
		n.CallLimit = options.Timeout
	}
	m := bundle.Machine{KeepConfig: o.keepConfig}
	if config, err := env.Config(); err == nil {
		m.Files = slices.DeleteFunc([]string{config.Path, config.ShimConfig}, func(path string) bool { return path == "" })
	}
	parts := append(n.Parts(),
		n.Part("why", func(ctx context.Context, conn *client.Conn) (func(*bundle.Report), error) {
			return o.why(ctx, env, conn)
		}),
		bundle.Part{Name: "endpoints", Collect: func(ctx context.Context) (func(*bundle.Report), error) {
			rows, err := probedEndpoints(ctx, env)
			return func(r *bundle.Report) { r.Endpoints = rows }, err
		}},
		bundle.Part{Name: "doctor", Collect: func(ctx context.Context) (func(*bundle.Report), error) {
			findings := examine(ctx, env)[1:] // the first is about the config file, and may quote it
			return func(r *bundle.Report) { r.Doctor = findings }, nil
		}})
	defer n.Close()
	return r, r.Collect(ctx, append(parts, m.Parts()...), o.progress(env))
}

// why adds why pods do not run, and the events of those of apply and sync, which no runtime has.
func (o *dumpOptions) why(ctx context.Context, env *cli.Env, conn *client.Conn) (func(*bundle.Report), error) {
	if remote := conn.Remote(); remote != "" {
		return nil, errors.New("the runtime is not on this host")
	}
	c, err := diagnose.Open(ctx, conn, diagnose.Options{Dirs: pod.DefaultDirs(env.LookupEnv), Now: env.Now})
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
		one := bundle.Finding{Severity: string(f.Severity), Code: string(f.Code), Where: f.Where(), Time: stamp(f.Time)}
		if o.logs != bundle.LogsNone {
			one.Text = f.Text
		}
		findings = append(findings, one)
	}
	var events []bundle.Event
	for _, p := range facts.Pods {
		for _, e := range p.Events {
			if facts.At.Sub(e.Time) >= bundle.EventsSince {
				continue
			}
			one := bundle.Event{Time: stamp(e.Time), Where: strings.TrimSuffix(e.Namespace+"/"+e.Pod+"/"+e.Container, "/"), Reason: e.Reason}
			if o.logs == bundle.LogsAll {
				one.Message = e.Message
			}
			events = append(events, one)
		}
	}
	return func(r *bundle.Report) { r.Findings, r.Events = findings, append(r.Events, events...) }, nil
}

func stamp(t time.Time) bundle.Time {
	if t.IsZero() {
		return ""
	}
	return bundle.Time(t.UTC().Format(time.RFC3339))
}

// progress prints a line on a terminal for each part that is done.
func (o *dumpOptions) progress(env *cli.Env) func(bundle.Result) {
	if o.quiet || !env.ErrTerminal {
		return func(bundle.Result) {}
	}
	return func(r bundle.Result) { env.Note("%-18s %5.1f s  %s", r.Part, r.Seconds, r.Error) }
}
