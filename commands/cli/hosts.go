package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/fanout"
	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/output"
)

// With --hosts a command line runs on each of several hosts, and what they answer is shown as one
// result. A host is an endpoint, and its runner is this program in itself: Run once more, with
// -r ENDPOINT and in a mode in which views write parts for output.Merge.

// The flags about several hosts.
const (
	flagHosts       = "hosts"
	flagHostsFile   = "hosts-file"
	flagParallel    = "parallel"
	flagNodeTimeout = "node-timeout"
	flagYes         = "yes"
)

// OverNodes is how a verb runs on several nodes. A verb that has none does not: it talks with its
// user, goes on until it is interrupted, or is about the machine that it runs on.
type OverNodes struct {
	Changes bool // something that is there: more than one node wants --yes. The verb has --dry-run
	Lines   bool // its results are text, and are shown as they come
}

// partMode is set where another process merges what views show.
type partMode int

const (
	notPart partMode = iota
	partForPipe
	partForTerminal // ages are short there
)

// partModes are hidden words in front of a command line.
var partModes = map[string]partMode{"__part": partForPipe, "__part-terminal": partForTerminal}

// host is one that --hosts names.
type host struct{ name, endpoint string }

// Deadlines of a host.
const (
	readDeadline = time.Minute
	longDeadline = 10 * time.Minute
)

// sessionFlags are flags of verbs for one node at a time.
var sessionFlags = []string{"follow", "watch", "stdin", "tty"}

// readHosts reads which hosts a command line is for, and whether it can be for several.
func (env *Env) readHosts(c *urfave.Context) (err error) {
	g := &env.global
	if !c.IsSet(flagHosts) && !c.IsSet(flagHostsFile) {
		for _, name := range []string{flagParallel, flagNodeTimeout, flagYes} {
			if c.IsSet(name) {
				return Usagef("--%s goes with --hosts or --hosts-file", name)
			}
		}
		return nil
	}
	verb := env.line.Verb
	_, runs := env.OverNodes[verb]
	switch {
	case env.Compat:
		return Usagef("--%s does not go with --compat=crictl", flagHosts)
	case g.runtimeEndpoint != "" || g.imageEndpoint != "":
		return Usagef("--%s names the endpoints: --runtime-endpoint and --image-endpoint do not go with it", flagHosts)
	case g.parallel < 1:
		return Invalid(flagParallel, g.parallel, "must be 1 or more")
	case !runs:
		return &UsageError{Text: verb + " does not run on several hosts", Next: "`crishim -r ssh://HOST " + verb + "` runs it on one"}
	}
	for _, flag := range sessionFlags {
		if env.line.seen[flag] {
			return &UsageError{Text: fmt.Sprintf("%s --%s does not run on several hosts", verb, flag), Next: fmt.Sprintf("`crishim -r ssh://HOST %s --%s` runs it on one", verb, flag)}
		}
	}
	names := slices.Clone(g.hosts)
	if g.hostsFile != "" {
		text, err := bounded.ReadFile(g.hostsFile, bounded.Config)
		if err != nil {
			return BadInput(fmt.Errorf("--%s: %w", flagHostsFile, err))
		}
		for line := range bytes.Lines(text) {
			line, _, _ = bytes.Cut(line, []byte("#"))
			names = append(names, strings.Fields(string(line))...)
		}
	}
	env.nodes, err = env.hostsNamed(strings.Split(strings.Join(names, ","), ","))
	if len(names) == 0 {
		err = BadInput(fmt.Errorf("%s names no host", g.hostsFile))
	}
	return err
}

// hostsNamed finds the endpoints of hosts, each once.
func (env *Env) hostsNamed(names []string) (hosts []host, err error) {
	for _, name := range names {
		matching := []string{name}
		if strings.ContainsAny(name, "*?") {
			if matching, err = env.sshHosts(name); err != nil {
				return nil, err
			}
		}
		for _, name := range matching {
			h := host{name, name}
			if name == "" || !strings.Contains(name, "://") && !strings.HasPrefix(name, "/") {
				h.endpoint = "ssh://" + name
			}
			_, err := client.ParseEndpoint(h.endpoint)
			var syntax *client.SyntaxError
			switch {
			case name == "":
				return nil, Usagef("--%s: a host is empty", flagHosts)
			case errors.As(err, &syntax):
				return nil, Invalid(flagHosts, name, syntax.Reason)
			}
			if !slices.ContainsFunc(hosts, func(other host) bool { return other.endpoint == h.endpoint }) {
				hosts = append(hosts, h)
			}
		}
	}
	return hosts, nil
}

// sshHosts are the names in ~/.ssh/config that match a pattern; "" matches all.
func (env *Env) sshHosts(pattern string) ([]string, error) {
	file := filepath.Join(env.getenv("HOME"), ".ssh", "config")
	text, err := bounded.ReadFile(file, bounded.Config)
	if err != nil {
		return nil, BadInput(fmt.Errorf("--%s %s: %w", flagHosts, pattern, err))
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(strings.Replace(line, "=", " ", 1))
		if len(words) == 0 || !strings.EqualFold(words[0], "host") {
			continue
		}
		for _, name := range words[1:] {
			matches, err := path.Match(pattern, name)
			if err != nil {
				return nil, Invalid(flagHosts, pattern, "must be a name, or a pattern of names with * and ?")
			}
			if (matches || pattern == "") && !strings.ContainsAny(name, "*?!") {
				names = append(names, name)
			}
		}
	}
	if names == nil {
		return nil, Usagef("--%s: no name in %s matches %s", flagHosts, file, Quote(pattern))
	}
	return names, nil
}

// nodeError is why a command line failed on one node.
type nodeError struct{ fanout.Failure }

func (e *nodeError) Error() string { return e.Node + ": " + e.Message }

func (e *nodeError) Hint() string { return e.Failure.Hint }

// overNodes runs the command line on its hosts, and shows what would change before something does.
func (env *Env) overNodes(ctx context.Context) error {
	how := env.OverNodes[env.line.Verb]
	args := env.forwarded()
	if !how.Changes || len(env.nodes) == 1 || env.global.yes || env.line.seen["dry-run"] {
		return env.fanOut(ctx, how, args)
	}
	args = slices.Insert(args, slices.Index(args, "--"), "--dry-run")
	if err := env.fanOut(ctx, how, args); err != nil {
		return err
	}
	return WithHint(fmt.Errorf("nothing is done yet: this is on %d hosts", len(env.nodes)), "--%s does it", flagYes)
}

// ownFlags are the global flags that are not for the command line on a node.
var ownFlags = []string{flagHosts, flagHostsFile, flagParallel, flagNodeTimeout, flagYes, "error-format", "color", "profile-cpu", "profile-mem"}

// forwarded is the command line for a node.
func (env *Env) forwarded() (args []string) {
	all := env.line.Args[1:]
	for len(all) > 0 && looksLikeFlag(all[0]) {
		if !slices.Contains(ownFlags, flagName(all[0])) {
			args = append(args, all[0])
		}
		all = all[1:]
	}
	return append(args, all...)
}

// fanOut runs a command line on all hosts and shows what they answer: results first, then what failed.
func (env *Env) fanOut(ctx context.Context, how OverNodes, args []string) error {
	o := fanout.Options{Parallel: env.global.parallel, Lines: how.Lines, Out: env.Out, Err: env.Err}
	o.Deadline = cmp.Or(env.global.nodeTimeout, readDeadline)
	if env.global.nodeTimeout == 0 && how.Lines {
		o.Deadline = longDeadline
	}
	var names []string
	endpoints := map[string]string{}
	for _, h := range env.nodes {
		names, endpoints[h.name] = append(names, h.name), h.endpoint
	}
	parts := map[string]output.Part{}
	o.Answered = func(a *fanout.Answer) error {
		part, isPart, err := output.ReadPart(a.Out)
		switch {
		case err != nil:
			a.Unreadable(err)
		case isPart && env.shown.Format.Kind == output.JSONL:
			return output.Merge(env.Out, []output.NodePart{{Node: a.Node, Part: part}}, env.shown.Options)
		case isPart:
			parts[a.Node] = part
		}
		return nil
	}
	answers, err := fanout.Run(ctx, names, o, env.hostRunner(endpoints, args))
	if err != nil {
		return err
	}
	for _, a := range answers {
		for _, w := range a.Warnings {
			env.Warn("%s: %s", a.Node, w.Message)
		}
	}
	return Join(env.showAnswers(answers, parts), failuresOf(answers, env.global.errorFormat == errorJSON))
}

// showAnswers merges the views of nodes. Text is shown with the name of its node before each line.
func (env *Env) showAnswers(answers []fanout.Answer, parts map[string]output.Part) error {
	var views []output.NodePart
	for _, a := range answers {
		if part, ok := parts[a.Node]; ok {
			views = append(views, output.NodePart{Node: a.Node, Part: part})
			continue
		}
		lines := fanout.NewLineWriter(env.Out, env.mu, a.Node+" | ")
		if len(a.Out) == 0 || env.shown == nil || env.shown.Format.Kind == output.JSONL {
			continue
		}
		if _, err := lines.Write(a.Out); err != nil {
			return err
		}
		if err := lines.Flush(); err != nil {
			return err
		}
	}
	if views == nil {
		return nil
	}
	return output.Merge(env.Out, views, env.shown.Options)
}

// maxHints is how many next steps are shown for the failures of many nodes.
const maxHints = 3

// failuresOf has a line for each node that failed. For people the hints stand below the last, each once.
func failuresOf(answers []fanout.Answer, forPrograms bool) error {
	var failed []error
	var last *nodeError
	var hints []string
	for _, a := range answers {
		if a.Failure == nil {
			continue
		}
		last = &nodeError{*a.Failure}
		failed = append(failed, last)
		if hint := last.Failure.Hint; !forPrograms {
			last.Failure.Hint = ""
			if hint != "" && len(hints) < maxHints && !slices.Contains(hints, hint) {
				hints = append(hints, hint)
			}
		}
	}
	if !forPrograms && last != nil {
		last.Failure.Hint = strings.Join(hints, "\n")
	}
	return Join(failed...)
}

// hostRunner runs command lines of this program on hosts, each in an environment of its own.
func (env *Env) hostRunner(endpoints map[string]string, args []string) fanout.Runner {
	mode := "__part"
	if env.OutTerminal {
		mode = "__part-terminal"
	}
	return func(ctx context.Context, node string, stdout, stderr io.Writer) (int, error) {
		own := *env
		own.In, own.Out, own.Err = strings.NewReader(""), stdout, stderr
		own.InTerminal, own.OutTerminal, own.ErrTerminal, own.Width, own.Exit, own.AskPassword = false, false, false, nil, nil, nil
		endpoint := endpoints[node]
		line := slices.Concat([]string{"crishim", mode, "--runtime-endpoint=" + endpoint, "--image-endpoint=" + endpoint}, args)
		return Run(ctx, line, &own, env.newApp), nil
	}
}

// withNode adds the column of the node to those that flags may name.
func withNode(columns output.Columns) output.Columns {
	if columns == nil {
		return nil
	}
	return append(output.Columns{output.NodeColumn}, columns...)
}

// leaveNode leaves the column of the node to who merges the parts.
func (v *View) leaveNode() {
	isNode := func(name string) bool { return strings.EqualFold(strings.TrimSpace(name), output.NodeColumn) }
	if len(v.Columns) > 0 && slices.ContainsFunc(v.Columns, isNode) {
		v.Columns = slices.DeleteFunc(v.Columns, isNode)
	}
	if isNode(strings.TrimPrefix(v.Sort, "-")) {
		v.Sort = ""
	}
}
