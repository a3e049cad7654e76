package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/output"
)

// With several endpoints a verb runs on a connection to each of them, with an Env of its own. The results
// are collected in output.Parts and shown once, with the node; lines of text begin with the node.

// Cluster reaches the nodes of a cluster. The caller of Run sets it.
type Cluster struct {
	One      bool // the command line is for one node, and its result looks as on that node
	Parallel int
	Timeout  time.Duration // of a node; 0 for the verb's default
	Yes      bool
	// Nodes returns the names of the nodes. It is called after the command line has been checked.
	Nodes func(context.Context) ([]string, error)
	// Open returns a dialler for a node's runtime, see client.Options.Relay, and Close ends it.
	Open  func(ctx context.Context, node string, line NodeLine) (func(ctx context.Context, network, address string) (net.Conn, error), error)
	Close func(node string)
	// There runs a command line on a node, with the streams of env.
	There func(ctx context.Context, env *Env, node string, line NodeLine) error
}

// NodeLine is a command line for a node.
type NodeLine struct {
	Verb string
	OnNode
	Socket   string // of --runtime-endpoint; "" for the node's default
	Deadline time.Duration

	Args    []string // without the program's name
	Input   bool     // it reads standard input
	Columns int      // of the terminal; 0 for none
}

// OnNode has the properties of a verb that matter on nodes.
type OnNode struct {
	Several bool   // it runs on several nodes at once
	There   bool   // it runs on the node, because it needs the node's files
	Rights  string // of internal/kube; on several nodes, rights to change need --yes
	Logs    bool   // it reads or writes log files
}

// OnNodes returns the properties of a verb on nodes.
func OnNodes(verb string) OnNode {
	switch verb {
	case "ps", "pods", "images", "inspect", "inspectp", "inspecti", "stats", "statsp", "metricsp", "metricdescs",
		"imagefsinfo", "version", "info", "runtime-config":
		return OnNode{Several: true, Rights: kube.RightsRead}
	case "exec", "pull", "stop", "restart", "rm", "kill", "pause", "unpause", "stopp", "rmp", "rmi":
		return OnNode{Several: true, Rights: kube.RightsChange}
	case "history", "diff", "events", "wait", "save":
		return OnNode{Rights: kube.RightsRead}
	case "logs", "describe", "why", "who", "df", "doctor", "dump", "endpoints", "config":
		return OnNode{There: true, Rights: kube.RightsRead, Logs: true}
	case "apply", "delete", "sync", "gc", "serve":
		return OnNode{There: true, Rights: kube.RightsHost, Logs: true}
	case "attach", "cp", "port-forward", "load", "update", "checkpoint", "update-runtime-config":
		return OnNode{Rights: kube.RightsChange}
	case "run", "runp", "create", "start", "debug":
		return OnNode{Rights: kube.RightsChange, Logs: true} // on Docker they link the logs of containers
	}
	return OnNode{Rights: kube.RightsRead} // top, whose keys run other verbs
}

// The flags about several nodes.
const (
	flagHosts       = "hosts"
	flagHostsFile   = "hosts-file"
	flagParallel    = "parallel"
	flagNodeTimeout = "node-timeout"
	flagYes         = "yes"
)

// Deadlines of a node.
const (
	readDeadline = time.Minute
	longDeadline = 10 * time.Minute
)

// several has the endpoints of a command line for more than one.
type several struct {
	what  string          // host, endpoint, node
	toOne string          // the beginning of a command line for one of them
	nodes []namedEndpoint // nil to ask the cluster
}

type namedEndpoint struct{ name, endpoint string }

// readNodes reads the endpoints of a command line for several, and checks whether the verb runs there.
func (env *Env) readNodes(c *urfave.Context) error {
	g := &env.global
	hosts := c.IsSet(flagHosts) || c.IsSet(flagHostsFile)
	switch {
	case env.Cluster != nil && (hosts || len(g.runtimeEndpoints) > 1):
		return Usagef("several endpoints do not go with nodes of a cluster")
	case env.Cluster != nil && env.Cluster.One:
		return nil
	case env.Cluster != nil:
		env.several = &several{what: "node", toOne: "kubectl crishim --node NODE --"}
		g.parallel, g.nodeTimeout, g.yes = env.Cluster.Parallel, env.Cluster.Timeout, env.Cluster.Yes
	case hosts:
		env.several = &several{what: "host", toOne: "crishim -r ssh://HOST"}
	case len(g.runtimeEndpoints) > 1:
		env.several = &several{what: "endpoint", toOne: "crishim -r ENDPOINT"}
	default:
		for _, name := range []string{flagParallel, flagNodeTimeout, flagYes} {
			if c.IsSet(name) {
				return Usagef("--%s goes with several endpoints: --hosts, --hosts-file or more than one -r", name)
			}
		}
		return nil
	}
	verb, all := env.line.Verb, "several "+env.several.what+"s"
	switch {
	case env.Compat:
		return Usagef("running on %s does not go with --compat=crictl", all)
	case g.parallel < 1:
		return Invalid(flagParallel, g.parallel, "must be 1 or more")
	case g.imageEndpoint != "":
		return Usagef("--image-endpoint does not go with %s", all)
	case !OnNodes(verb).Several:
		return &UsageError{Text: verb + " does not run on " + all, Next: "`" + env.several.toOne + " " + verb + "` runs it on one"}
	}
	for _, flag := range []string{"follow", "watch", "stdin", "tty"} {
		if env.line.Given[flag] {
			return &UsageError{Text: fmt.Sprintf("%s --%s does not run on %s", verb, flag, all), Next: fmt.Sprintf("`%s %s --%s` runs it on one", env.several.toOne, verb, flag)}
		}
	}
	if env.Cluster != nil {
		return nil
	}
	return env.readEndpoints(hosts)
}

// onNodes runs a verb on all nodes. It shows the results first, then the failures.
func (env *Env) onNodes(ctx context.Context, do func(context.Context, *Env) error) error {
	nodes := env.several.nodes
	if env.Cluster != nil {
		names, err := env.Cluster.Nodes(ctx)
		if err != nil {
			return err
		}
		for _, name := range names {
			nodes = append(nodes, namedEndpoint{name: name})
		}
	}
	if _, err := env.Config(); err != nil { // read once for all nodes
		return err
	}
	how := OnNodes(env.line.Verb)
	try := how.Rights != kube.RightsRead && len(nodes) > 1 && !env.global.yes && !env.line.Given["dry-run"]
	parts, failures := make([]*output.Part, len(nodes)), make([]*Failure, len(nodes))
	free := make(chan struct{}, env.global.parallel)
	var running sync.WaitGroup
	var showing sync.Mutex
	var shown error // guarded by showing
	for i, n := range nodes {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			defer func() { <-free }()
			part, failure := env.onOne(ctx, n, try, do)
			if failures[i] = failure; part.Empty() {
				return
			}
			if env.shown.Format.Kind != output.JSONL {
				parts[i] = part
				return
			}
			showing.Lock()
			defer showing.Unlock()
			shown = cmp.Or(shown, output.Merge(env.Out, []*output.Part{part}, env.shown.Options))
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if parts = slices.DeleteFunc(parts, func(p *output.Part) bool { return p == nil }); len(parts) > 0 {
		shown = output.Merge(env.Out, parts, env.shown.Options)
	}
	failures = slices.DeleteFunc(failures, func(f *Failure) bool { return f == nil })
	err := Join(shown, failuresOf(failures, env.global.errorFormat == errorJSON))
	if left := len(nodes) - len(failures); try && left > 0 {
		err = Join(err, WithHint(fmt.Errorf("nothing is done yet: this is on %s", output.Count(left, env.several.what)), "--%s does it", flagYes))
	}
	return err
}

// onOne runs a verb on one of several nodes.
func (env *Env) onOne(ctx context.Context, n namedEndpoint, try bool, do func(context.Context, *Env) error) (*output.Part, *Failure) {
	prefix := output.Sanitize(n.name) + " | "
	out := NewLineWriter(safeLines{env.Out, env.OutTerminal, output.SanitizeText}, env.mu, prefix)
	errs := NewLineWriter(safeLines{env.Err, env.ErrTerminal, output.SanitizeText}, env.mu, prefix)
	part := &output.Part{Node: n.name, Text: out}
	own := *env
	own.node, own.of, own.try, own.mu = n.name, env, try, new(sync.Mutex)
	own.In, own.Out, own.Err = strings.NewReader(""), part, errs
	own.InTerminal, own.OutTerminal, own.ErrTerminal, own.Width, own.Exit, own.AskPassword = false, false, false, nil, nil, nil
	own.global.runtimeEndpoints, own.global.imageEndpoint = []string{n.endpoint}, n.endpoint
	if env.Cluster != nil {
		defer env.Cluster.Close(n.name)
		own.global.runtimeEndpoints, own.global.imageEndpoint = env.global.runtimeEndpoints, ""
	}
	err := within(ctx, env.deadline(), func(ctx context.Context) error { return do(ctx, &own) })
	if err = Join(err, out.Flush(), errs.Flush()); err != nil {
		return part, own.failureOf(err)
	}
	return part, nil
}

// deadline returns the limit of a node; 0 for none.
func (env *Env) deadline() time.Duration {
	switch {
	case env.Cluster != nil && env.Cluster.One:
		return env.Cluster.Timeout
	case env.global.nodeTimeout == 0 && OnNodes(env.line.Verb).Rights != kube.RightsRead:
		return longDeadline
	}
	return cmp.Or(env.global.nodeTimeout, readDeadline)
}

// lateError is the error of a node that does not answer in time.
type lateError struct {
	after time.Duration
	why   error // the reason, if it is known
}

func (e *lateError) Error() string {
	if e.why != nil {
		return fmt.Sprintf("no answer within %s: %v", e.after, e.why)
	}
	return fmt.Sprintf("no answer within %s", e.after)
}

// within limits the time of a node.
func within(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	// A deadline of the context would end calls a little earlier, with errors of their own.
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	if limit > 0 {
		defer time.AfterFunc(limit, cancel).Stop()
	}
	err := do(limited)
	if err == nil || limited.Err() == nil || ctx.Err() != nil {
		return err
	}
	late := &lateError{after: limit}
	if opening := (openError{}); errors.As(err, &opening) && !errors.Is(err, context.Canceled) {
		late.why = opening.error
	}
	return late
}

// openError is the error of a node that cannot be reached.
type openError struct {
	error
	env *Env
}

func (e openError) Error() string { return e.env.onThatNode(e.error).Error() }

func (e openError) Unwrap() error { return e.error }

// open sets the relay to a node of a cluster.
func (env *Env) open(ctx context.Context, o *client.Options) error {
	err := env.nameNode(ctx)
	if err != nil {
		return err
	}
	line := NodeLine{Verb: env.line.Verb, OnNode: OnNodes(env.line.Verb), Socket: env.global.runtimeEndpoint(), Deadline: env.deadline()}
	o.RuntimeEndpoint = "node " + env.node
	if o.Relay, err = env.Cluster.Open(ctx, env.node, line); err != nil {
		return openError{err, env}
	}
	return nil
}

// nameNode finds the name of the only node.
func (env *Env) nameNode(ctx context.Context) error {
	if env.node != "" {
		return nil
	}
	names, err := env.Cluster.Nodes(ctx)
	if err == nil {
		env.node = names[0]
	}
	return err
}

// onThatNode adds the node to an error, unless the list of failures does.
func (env *Env) onThatNode(err error) error {
	if env.of != nil {
		return err
	}
	return About("node "+env.node, err)
}

// there runs a command line on its node.
func (env *Env) there(ctx context.Context, args []string) error {
	if err := env.nameNode(ctx); err != nil {
		return err
	}
	color := "never"
	if env.Color() {
		color = "always"
	}
	line := NodeLine{Verb: env.line.Verb, OnNode: OnNodes(env.line.Verb), Deadline: env.deadline(), Args: slices.Concat([]string{"--color=" + color}, args)}
	for _, flag := range env.line.Args {
		line.Input = line.Input || flag == "-" || strings.HasSuffix(flag, "=-")
		if socket, ok := strings.CutPrefix(flag, "--runtime-endpoint="); ok {
			line.Socket = socket
		}
	}
	if env.getenv("TERM") != "dumb" {
		line.Columns = env.width()
	}
	shown, flush := env.fromThere(args)
	err := within(ctx, line.Deadline, func(ctx context.Context) error { return env.Cluster.There(ctx, shown, env.node, line) })
	err = Join(err, flush())
	if late := (*lateError)(nil); errors.As(err, &late) {
		return env.onThatNode(err)
	}
	return err
}

// fromThere returns an Env whose streams show a node's output as data of that node. Standard error has the node before
// each line, or in the JSON of --error-format, so that nothing there looks like crishim's own message. On a terminal the result
// keeps its colours and no other control character. Logs, of which standard error has a part, are the same as without a cluster.
func (env *Env) fromThere(args []string) (shown *Env, flush func() error) {
	own, logs := *env, env.line.Verb == "logs"
	out := NewLineWriter(safeLines{env.Out, true, output.SanitizeColored}, env.mu, "")
	if env.OutTerminal {
		own.Out = out
	}
	errs := NewLineWriter(safeLines{env.Err, env.ErrTerminal, output.SanitizeText}, env.mu, "")
	switch {
	case logs:
	case wantsJSONErrors(args):
		errs.to = nodeFailures{errs.to, env.node}
	default:
		errs.prefix = output.Sanitize(env.node) + " | "
	}
	if !logs || env.ErrTerminal {
		own.Err = errs
	}
	return &own, func() error { return Join(out.Flush(), errs.Flush()) }
}

// nodeFailures adds the node to lines of --error-format=json, and puts it before others.
type nodeFailures struct {
	io.Writer
	node string
}

func (w nodeFailures) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		var of map[string]Failure
		text := append([]byte(output.Sanitize(w.node)+" | "), line...)
		if json.Unmarshal(line, &of) == nil && len(of) == 1 {
			for kind, f := range of {
				f.Node = w.node
				of[kind] = f
			}
			failure, _ := json.Marshal(of) // of strings
			text = append(output.EscapeJSON(failure), '\n')
		}
		if _, err := w.Writer.Write(text); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// failureOf joins the errors of a node to one failure of one line.
func (env *Env) failureOf(err error) *Failure {
	var one *Failure
	var messages []string
	for _, err := range Failures(err) {
		f := describeFailure(env, err).Failure
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
	one.Node, one.Message = env.node, strings.Join(slices.Compact(messages), "; ")
	return one
}

// nodeError is the failure of a command line on one node.
type nodeError struct{ Failure }

func (e *nodeError) Error() string { return e.Node + ": " + e.Message }

func (e *nodeError) Hint() string { return e.Failure.Hint }

// maxHints limits the hints for the failures of many nodes.
const maxHints = 3

// failuresOf returns an error for each node that failed. For people, the last one has the hints.
func failuresOf(failures []*Failure, forPrograms bool) error {
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
		last.Failure.Hint = strings.Join(hints, "\n")
	}
	return Join(failed...)
}
