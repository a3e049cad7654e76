package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/node/bundle"
	"github.com/crishim/crishim/diagnose"
	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

type dumpOptions struct {
	output  string // "-": standard output
	logs    string
	tail    int64
	keepEnv bool
	quiet   bool
	title   string
}

// NewDump returns the verb that makes a bundle for the report of a fault.
func NewDump(env *cli.Env) *urfave.Command {
	o := &dumpOptions{}
	return &urfave.Command{
		Name:  "dump",
		Usage: "collect what a bug report needs in one archive",
		Description: cli.WithExamples("Writes a .tar.gz, readable by you alone, with an index.html that opens without a network: versions, endpoints, doctor, why pods do not run, info, configuration of the runtime and CNI;\n"+
			"lists, inspections and use of pods, containers and images; events; the last log lines of containers that did not end well or were restarted; kernel, cgroups, mounts, journal.\n"+
			"A part that does not answer in time is in it with its error, so that it works on a node of which half is broken. Nothing is changed.\n\n"+
			"Removed are values of environment variables, registry logins, fields, arguments and annotations named like secrets, and keys, tokens and passwords by their form, also where\n"+
			"the same value is again elsewhere; removed.json lists where, never what. Names of hosts, pods and images, addresses, and what programs log stay: look at it before you send it.",
			"crishim dump", "crishim dump --logs all --tail 1000 -o node1.tar.gz", "crishim dump -o - | ssh laptop 'cat > node1.tar.gz'"),
		Flags: []urfave.Flag{
			cli.StringFlag(&o.output, "output", "write to `FILE`, - for standard output (default crishim-dump-HOST-TIME.tar.gz)", "o"),
			logsFlag(&o.logs),
			tailFlag(&o.tail),
			cli.BoolFlag(&o.keepEnv, "keep-env", "keep values of environment variables, but of those named like secrets"),
			cli.BoolFlag(&o.quiet, "quiet", "do not show progress", "q"),
		},
		Action: env.Offline(o.check, o.run),
	}
}

func logsFlag(logs *string) urfave.Flag {
	*logs = bundle.LogsUnhealthy
	return cli.WordFlag(logs, []string{bundle.LogsAll, bundle.LogsUnhealthy, bundle.LogsNone}, "logs", "logs of `WHICH` containers: all, unhealthy, none (default unhealthy)")
}

func tailFlag(tail *int64) urfave.Flag {
	*tail = 200
	return cli.IntFlag(tail, "tail", "the last `N` lines of each log (default 200)", "n")
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
	b, err := o.collect(ctx, env)
	if err != nil {
		return err
	}
	if err = b.Write(to); err == nil && file != nil {
		err = file.Commit()
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = cli.WithHint(err, "`crishim dump -o - | ssh HOST 'cat > dump.tar.gz'` needs no room here")
	}
	if err != nil {
		return err
	}
	count := 0
	for _, r := range b.Removals {
		count += r.Count
	}
	env.Note("crishim: %d values were removed that looked like secrets; look at index.html and the logs before you send it", count)
	var failed []string
	for _, r := range b.Results {
		if r.Error != "" {
			failed = append(failed, r.Part)
		}
	}
	if len(failed) > 0 {
		env.Warn("%d of %d parts are missing or not whole, index.html says why: %s", len(failed), len(b.Results), strings.Join(failed, ", "))
	}
	if file == nil {
		return nil
	}
	return env.Say("%s", o.output)
}

// collect collects all parts.
func (o *dumpOptions) collect(ctx context.Context, env *cli.Env) (*bundle.Bundle, error) {
	n := &bundle.Node{
		Version: cli.OwnVersion(env), Connect: env.Connect, Now: env.Now, Logs: o.logs, Tail: int(o.tail), Second: env.StatsSecond,
		Usage: func(before, after *runtimeapi.ContainerStats) output.Usage {
			return cli.ContainerUsage(before.GetCpu(), after, cli.Extras{})
		},
	}
	if options, err := env.ClientOptions(false); err == nil {
		n.CallLimit = options.Timeout
	}
	h := bundle.Host{}
	if config, err := env.Config(); err == nil {
		h.Files = []string{config.Path, config.ShimConfig}
	}
	parts := append(n.Parts(ctx),
		n.Part("why", 0, func(ctx context.Context, conn *client.Conn, f *bundle.Files) error { return o.why(ctx, env, conn, f) }),
		bundle.Part{Name: "endpoints", Collect: func(ctx context.Context, f *bundle.Files) error {
			rows, err := probedEndpoints(ctx, env)
			return cli.Join(err, f.View("endpoints.json", "Endpoints", output.Options{}, func(w io.Writer, o output.Options) error { return output.Endpoints(w, rows, o) }))
		}},
		bundle.Part{Name: "doctor", Collect: func(ctx context.Context, f *bundle.Files) error {
			findings := examine(ctx, env)
			return f.View("doctor.json", "Checks", output.Options{}, func(w io.Writer, o output.Options) error { return output.Findings(w, findings, o) })
		}})
	defer n.Close()
	return bundle.Collect(ctx, append(parts, h.Parts()...), bundle.Options{Title: o.title, Now: env.Now, KeepEnv: o.keepEnv, Done: o.progress(env)})
}

// why adds why pods do not run, and the events of those of apply and sync, which no runtime has.
func (o *dumpOptions) why(ctx context.Context, env *cli.Env, conn *client.Conn, f *bundle.Files) error {
	if remote := conn.Remote(); remote != "" {
		f.Note("the runtime is not on this host, which the parts of the host are of: %s", remote)
		return nil
	}
	c, err := diagnose.Open(ctx, conn, diagnose.Options{Dirs: pod.DefaultDirs(env.LookupEnv), Now: env.Now})
	if err != nil {
		return err
	}
	defer c.Close()
	pods, err := c.Pods(ctx)
	if err != nil {
		return err
	}
	facts, err := c.Collect(ctx, pods...)
	if err != nil {
		return err
	}
	for _, source := range facts.Node.Unread {
		f.Note("%s", source)
	}
	findings := diagnose.Explain(facts)
	var rows [][]string
	for i, finding := range findings {
		if o.logs == bundle.LogsNone {
			findings[i].Log = nil
		}
		rows = append(rows, []string{string(finding.Severity), finding.Where(), finding.Text, string(finding.Code), strings.Join(finding.Evidence, "; ")})
	}
	f.Rows("What is not as it should be", []string{"SEVERITY", "WHAT", "WHY", "CODE", "EVIDENCE"}, rows)
	events := []kuberuntime.Event{}
	for _, p := range facts.Pods {
		for _, e := range p.Events {
			if facts.At.Sub(e.Time) < bundle.EventsSince {
				events = append(events, e)
			}
		}
	}
	for name, document := range map[string]any{"why.json": map[string]any{"findings": findings}, "pod-events.json": map[string]any{"events": events}} {
		text, failed := json.Marshal(document)
		err = cli.Join(err, failed, f.Document(name, text, name != "why.json"))
	}
	return err
}

// progress is a line on a terminal for each part that is done.
func (o *dumpOptions) progress(env *cli.Env) func(bundle.Result) {
	if o.quiet || !env.ErrTerminal {
		return nil
	}
	return func(r bundle.Result) {
		text := fmt.Sprintf("%d files", len(r.Files))
		if r.Error != "" {
			text += ", " + r.Error
		}
		env.Note("%-18s %5.1f s  %s", r.Part, r.Took, text)
	}
}
