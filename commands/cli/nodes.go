package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/output"
)

// With several endpoints, a verb runs once for each of them, with its own connection and printer. The results are
// collected in output.Parts and shown once, with the node; lines of text begin with the node.

// nodes holds the endpoints of a command line for several endpoints.
type nodes struct {
	what  string          // host, endpoint, node; "" for one endpoint
	toOne string          // the beginning of a command line for one endpoint, for hints
	all   []namedEndpoint // nil to ask the cluster

	// Flags.
	hosts     []string
	hostsFile string
	parallel  int
	yes       bool
}

// read reads the endpoints of a command line, and checks whether the verb runs on several.
func (n *nodes) read(c *urfave.Context, in *Invocation, connector *Connector) error {
	hosts := c.IsSet(flagHosts) || c.IsSet(flagHostsFile)
	switch {
	case in.Cluster != nil && (hosts || len(connector.runtimeEndpoints) > 1):
		return Usagef("several endpoints do not go with nodes of a cluster")
	case in.Cluster != nil && in.Cluster.One:
		return nil
	case in.Cluster != nil:
		n.what, n.toOne = "node", "kubectl crishim --node NODE --"
		n.parallel, n.yes, connector.nodeTimeout = in.Cluster.Parallel, in.Cluster.Yes, in.Cluster.Timeout
	case hosts:
		n.what, n.toOne = "host", "crishim -r ssh://HOST"
	case len(connector.runtimeEndpoints) > 1:
		n.what, n.toOne = "endpoint", "crishim -r ENDPOINT"
	default:
		for _, name := range []string{flagParallel, flagNodeTimeout, flagYes} {
			if c.IsSet(name) {
				return Usagef("--%s goes with several endpoints: --hosts, --hosts-file or more than one -r", name)
			}
		}
		return nil
	}
	verb, all := in.line.Verb, "several "+n.what+"s"
	switch {
	case in.Compat:
		return Usagef("running on %s does not go with --compat=crictl", all)
	case n.parallel < 1:
		return Invalid(flagParallel, n.parallel, "must be 1 or more")
	case connector.imageEndpoint != "":
		return Usagef("--image-endpoint does not go with %s", all)
	case !OnNodes(verb).Several:
		return &UsageError{Text: verb + " does not run on " + all, Next: "`" + n.toOne + " " + verb + "` runs it on one"}
	}
	for _, flag := range []string{"follow", "watch", "stdin", "tty"} {
		if in.line.Given[flag] {
			return &UsageError{Text: fmt.Sprintf("%s --%s does not run on %s", verb, flag, all), Next: fmt.Sprintf("`%s %s --%s` runs it on one", n.toOne, verb, flag)}
		}
	}
	in.several = true
	if in.Cluster != nil {
		return nil
	}
	return n.readEndpoints(connector.runtimeEndpoints, hosts, in.getenv("HOME"))
}

// readEndpoints reads the endpoints of -r, --hosts and --hosts-file.
func (n *nodes) readEndpoints(endpoints []string, hosts bool, home string) error {
	for _, name := range endpoints {
		if _, err := client.ParseEndpoint(name); err != nil {
			return err
		}
		n.add(namedEndpoint{name, name})
	}
	if !hosts {
		return nil
	}
	named, err := readHosts(n.hosts, n.hostsFile, home)
	for _, one := range named {
		n.add(one)
	}
	return err
}

// add adds an endpoint unless it is already in the list.
func (n *nodes) add(one namedEndpoint) {
	if !slices.ContainsFunc(n.all, func(other namedEndpoint) bool { return other.endpoint == one.endpoint }) {
		n.all = append(n.all, one)
	}
}

// run runs a verb on all nodes. It shows the results first, then the failures.
func (n *nodes) run(ctx context.Context, p *Printer, c *Connector, do func(context.Context, *Printer, *Connector) error) error {
	all := n.all
	if cluster := c.process.Cluster; cluster != nil {
		names, err := cluster.Nodes(ctx)
		if err != nil {
			return err
		}
		for _, name := range names {
			all = append(all, namedEndpoint{name: name})
		}
	}
	if _, err := c.Config(); err != nil { // read once for all nodes
		return err
	}
	in := c.in
	try := OnNodes(in.line.Verb).Rights != kube.RightsRead && len(all) > 1 && !n.yes && !in.line.Given["dry-run"]
	parts, failures := make([]*output.Part, len(all)), make([]*failure, len(all))
	free := make(chan struct{}, n.parallel)
	var running sync.WaitGroup
	var showing sync.Mutex
	var shown error // guarded by showing
	for i, node := range all {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			defer func() { <-free }()
			part, failure := runOnNode(ctx, node, try, p, c, do)
			if failures[i] = failure; part.Empty() {
				return
			}
			if in.merged.Format.Kind != output.JSONL {
				parts[i] = part
				return
			}
			showing.Lock()
			defer showing.Unlock()
			shown = cmp.Or(shown, output.Merge(p.Out, []*output.Part{part}, *in.merged))
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if parts = slices.DeleteFunc(parts, func(p *output.Part) bool { return p == nil }); len(parts) > 0 {
		shown = output.Merge(p.Out, parts, *in.merged)
	}
	failures = slices.DeleteFunc(failures, func(f *failure) bool { return f == nil })
	err := Join(shown, failuresOf(failures, p.errorFormat == errorJSON))
	if left := len(all) - len(failures); try && left > 0 {
		err = Join(err, WithHint(fmt.Errorf("nothing is done yet: this is on %s", output.Count(left, n.what)), "--%s does it", flagYes))
	}
	return err
}

// runOnNode runs a verb on one of several nodes.
func runOnNode(ctx context.Context, node namedEndpoint, try bool, p *Printer, c *Connector, do func(context.Context, *Printer, *Connector) error) (*output.Part, *failure) {
	prefix := output.Sanitize(node.name) + " | "
	out := NewPrefixWriter(safeLines{p.Out, p.OutTerminal, output.SanitizeText}, p.mu, prefix)
	errs := NewPrefixWriter(safeLines{p.Err, p.ErrTerminal, output.SanitizeText}, p.mu, prefix)
	part := &output.Part{Node: node.name, Text: out}
	if cluster := c.process.Cluster; cluster != nil {
		defer cluster.Close(node.name)
	}
	p = p.forNode(node.name, part, errs, try)
	c = c.forNode(p, node)
	err := c.within(ctx, func(ctx context.Context) error { return do(ctx, p, c) })
	if err = Join(err, out.Flush(), errs.Flush()); err != nil {
		return part, failureOf(p, err)
	}
	return part, nil
}

// runThere runs a command line on the node, for a verb with OnNode.There.
func runThere(ctx context.Context, args []string, in *Invocation, c *Connector) error {
	if err := c.nameNode(ctx); err != nil {
		return err
	}
	p, color := in.Printer, "never"
	if p.Color() {
		color = "always"
	}
	line := NodeLine{Verb: in.line.Verb, OnNode: OnNodes(in.line.Verb), Deadline: c.deadline(), Args: slices.Concat([]string{"--color=" + color}, args)}
	for _, flag := range in.line.Args {
		line.Input = line.Input || flag == "-" || strings.HasSuffix(flag, "=-")
		if socket, ok := strings.CutPrefix(flag, "--runtime-endpoint="); ok {
			line.Socket = socket
		}
	}
	if !p.dumb() {
		line.Columns = p.Width()
	}
	streams, flush := streamsThere(args, in, c.node)
	return c.withinOne(ctx, func(ctx context.Context) error {
		return Join(in.Cluster.There(ctx, streams, c.node, line), flush())
	})
}

// streamsThere returns streams that mark the output of a node. The node's name is added to each line of standard error,
// as a prefix or in the JSON of --error-format, so that no line looks like crishim's own message. On a terminal the
// result keeps its colours and no other control character. For the verb logs the name is not added, because standard
// error is part of the log.
func streamsThere(args []string, in *Invocation, node string) (streams stream.Streams, flush func() error) {
	p, logs := in.Printer, in.line.Verb == "logs"
	streams = stream.Streams{In: in.In, Out: p.Out, Err: p.Err}
	out := NewPrefixWriter(safeLines{p.Out, true, output.SanitizeColored}, p.mu, "")
	if p.OutTerminal {
		streams.Out = out
	}
	errs := NewPrefixWriter(safeLines{p.Err, p.ErrTerminal, output.SanitizeText}, p.mu, "")
	switch {
	case logs:
	case wantsJSONErrors(args):
		errs.to = nodeFailures{errs.to, node}
	default:
		errs.prefix = output.Sanitize(node) + " | "
	}
	if !logs || p.ErrTerminal {
		streams.Err = errs
	}
	return streams, func() error { return Join(out.Flush(), errs.Flush()) }
}

// nodeFailures adds the node to lines of --error-format=json, and prefixes other lines with the node.
type nodeFailures struct {
	io.Writer
	node string
}

func (w nodeFailures) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		var of map[string]failure
		text := append([]byte(output.Sanitize(w.node)+" | "), line...)
		if json.Unmarshal(line, &of) == nil && len(of) == 1 {
			for kind, f := range of {
				f.Node = w.node
				of[kind] = f
			}
			failure, _ := json.Marshal(of) // cannot fail, because of contains only strings
			text = append(output.EscapeJSON(failure), '\n')
		}
		if _, err := w.Writer.Write(text); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// failureOf joins the errors of a node into one failure of a single line.
func failureOf(p *Printer, err error) *failure {
	var one *failure
	var messages []string
	for _, err := range Failures(err) {
		f := p.describe(err)
		if late := (*lateError)(nil); errors.As(err, &late) {
			f.Code = "deadline_exceeded"
		}
		if code, why, ok := commandStatus(err); ok {
			f.Message = cmp.Or(output.Sanitize(why), fmt.Sprintf("exit status %d", code))
		}
		if one == nil {
			one = &f
		}
		messages = append(messages, strings.NewReplacer(":\n  ", ": ", "\n  ", "; ", "\n", " ").Replace(f.Message))
	}
	one.Node, one.usage, one.Message = p.node, "", strings.Join(slices.Compact(messages), "; ")
	return one
}

// maxHints limits the hints for the failures of many nodes.
const maxHints = 3

// failuresOf returns an error for each node that failed. For people, the last error has the hints.
func failuresOf(failures []*failure, forPrograms bool) error {
	var failed []error
	var last *nodeError
	var hints []string
	for _, f := range failures {
		if !forPrograms {
			if f.Hint != "" && len(hints) < maxHints && !slices.Contains(hints, f.Hint) {
				hints = append(hints, f.Hint)
			}
			f.Hint = ""
		}
		last = &nodeError{*f}
		failed = append(failed, last)
	}
	if len(hints) > 0 {
		last.failure.Hint = strings.Join(hints, "\n")
	}
	return Join(failed...)
}

// wantsJSONErrors reports whether a command line has --error-format=json, even if the command line cannot be parsed.
func wantsJSONErrors(args []string) bool {
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			return false
		case name != "--error-format":
		case joined:
			return value == errorJSON
		case i+1 < len(args):
			return args[i+1] == errorJSON
		}
	}
	return false
}
