package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/fanout"
	"github.com/crishim/crishim/output"
)

// Remote runs command lines on other machines, whose answers are shown as one result: on the hosts of --hosts, or on the
// nodes of a cluster, for which the caller of Run sets it.
type Remote struct {
	What  string // one of them: host, node
	ToOne string // how a command line for one of them begins
	// Names returns the machines that the command line is for. It is called once the command line has been checked.
	Names func(context.Context) ([]string, error)
	// Run runs a command line on one of them, as a fanout.Runner does.
	Run func(ctx context.Context, node string, line Line, stdout, stderr io.Writer) (int, error)
	// Alone is set instead of the two where the command line is for one machine: it runs there, whatever its verb, with
	// the streams of this process. The command line has been parsed and is not checked.
	Alone func(context.Context, Line) error
}

// Line is a command line for another machine.
type Line struct {
	Args []string // without the program's name
	Verb string
	OverNodes
	Input    bool          // it reads standard input
	TTY      bool          // it asks for a terminal
	Endpoint string        // of --runtime-endpoint; "" for none
	Deadline time.Duration // 0: none
}

// OverNodes is what a verb does on other machines, and needs there.
type OverNodes struct {
	// Alone is for a verb that runs on one machine at a time: it is interactive, goes on until it is interrupted, creates
	// something, or is about the machine that it runs on.
	Alone   bool
	Changes bool // it changes what is there: several nodes need --yes, and it has --dry-run
	Lines   bool // its result is text, which is shown as it comes
	// Rights are those of internal/kube: to read, to change what the runtime has, or what the host has.
	Rights string
	Files  bool // it reads files of the host: logs
}

// The flags about several nodes.
const (
	flagParallel    = "parallel"
	flagNodeTimeout = "node-timeout"
	flagYes         = "yes"
)

// partMode is set where another process merges the views of several machines.
type partMode int

const (
	notPart partMode = iota
	partForPipe
	partForTerminal // ages are short there
)

// partModes are hidden first arguments of the program.
var partModes = map[string]partMode{"__part": partForPipe, "__part-terminal": partForTerminal}

// Deadlines of a node.
const (
	readDeadline = time.Minute
	longDeadline = 10 * time.Minute
)

// sessionFlags are flags of verbs for one node at a time.
var sessionFlags = []string{"follow", "watch", "stdin", "tty"}

// nodeError is why a command line failed on one node.
type nodeError struct{ fanout.Failure }

func (e *nodeError) Error() string { return e.Node + ": " + e.Message }

func (e *nodeError) Hint() string { return e.Failure.Hint }

// readRemote reads whether a command line is for other machines, and whether it can be.
func (env *Env) readRemote(c *urfave.Context) error {
	hosts := c.IsSet(flagHosts) || c.IsSet(flagHostsFile)
	switch {
	case !hosts && env.Remote == nil:
		for _, name := range []string{flagParallel, flagNodeTimeout, flagYes} {
			if c.IsSet(name) {
				return Usagef("--%s goes with --hosts or --hosts-file", name)
			}
		}
		return nil
	case hosts && env.Remote != nil:
		return Usagef("--%s does not go with %ss", flagHosts, env.Remote.What)
	case hosts:
		env.Remote = &Remote{What: "host", ToOne: "crishim -r ssh://HOST"}
	}
	verb, several := env.line.Verb, "several "+env.Remote.What+"s"
	switch how, known := env.OverNodes[verb]; {
	case env.Compat:
		return Usagef("running on %s does not go with --compat=crictl", several)
	case env.global.parallel < 1:
		return Invalid(flagParallel, env.global.parallel, "must be 1 or more")
	case !known || how.Alone:
		return &UsageError{Text: verb + " does not run on " + several, Next: "`" + env.Remote.ToOne + " " + verb + "` runs it on one"}
	}
	for _, flag := range sessionFlags {
		if env.line.seen[flag] {
			return &UsageError{Text: fmt.Sprintf("%s --%s does not run on %s", verb, flag, several), Next: fmt.Sprintf("`%s %s --%s` runs it on one", env.Remote.ToOne, verb, flag)}
		}
	}
	if hosts {
		return env.readHosts()
	}
	return nil
}

// lineFor describes a command line for Remote.
func (l commandLine) lineFor(env *Env, args []string) Line {
	line := Line{Args: args, Verb: l.Verb, OverNodes: env.OverNodes[l.Verb], TTY: l.seen["tty"]}
	line.Input = l.seen["stdin"] || l.seen["password-stdin"] || l.Verb == "load" && !l.seen["input"]
	for _, arg := range args {
		line.Input = line.Input || arg == "-" || strings.HasSuffix(arg, "=-")
	}
	for _, flag := range l.Args {
		if endpoint, ok := strings.CutPrefix(flag, "--runtime-endpoint="); ok && line.Endpoint == "" {
			line.Endpoint = endpoint
		}
	}
	return line
}

// overNodes runs the command line on its nodes. Without --yes one that changes several is only tried.
func (env *Env) overNodes(ctx context.Context) error {
	names, err := env.Remote.Names(ctx)
	if err != nil {
		return err
	}
	args := env.forwarded()
	if !env.OverNodes[env.line.Verb].Changes || len(names) == 1 || env.global.yes || env.line.seen["dry-run"] {
		return env.fanOut(ctx, names, args)
	}
	args = slices.Insert(args, slices.Index(args, "--"), "--dry-run")
	if err := env.fanOut(ctx, names, args); err != nil {
		return err
	}
	return WithHint(fmt.Errorf("nothing is done yet: this is on %d %ss", len(names), env.Remote.What), "--%s does it", flagYes)
}

// ownFlags are the global flags that are not for the command line on a node.
var ownFlags = []string{flagHosts, flagHostsFile, flagParallel, flagNodeTimeout, flagYes, "error-format", "color", "profile-cpu", "profile-mem"}

// forwarded returns the command line for a node: a mode, and what follows the program's name.
func (env *Env) forwarded() []string {
	args := []string{"__part"}
	if env.OutTerminal {
		args[0] = "__part-terminal"
	}
	all := env.line.Args[1:]
	for len(all) > 0 && looksLikeFlag(all[0]) {
		if !slices.Contains(ownFlags, flagName(all[0])) {
			args = append(args, all[0])
		}
		all = all[1:]
	}
	return append(args, all...)
}

// fanOut runs a command line on all nodes and shows what they answer: results first, then what failed.
func (env *Env) fanOut(ctx context.Context, names, args []string) error {
	line := env.line.lineFor(env, args)
	o := fanout.Options{Parallel: env.global.parallel, Lines: line.Lines, Out: env.lines(env.Out, env.OutTerminal), Err: env.lines(env.Err, env.ErrTerminal)}
	o.Deadline = cmp.Or(env.global.nodeTimeout, readDeadline)
	if env.global.nodeTimeout == 0 && line.Lines {
		o.Deadline = longDeadline
	}
	line.Deadline = o.Deadline
	parts := map[string]output.Part{}
	if !line.Lines {
		o.Answered = func(a *fanout.Answer) error { return env.readAnswer(a, parts) }
	}
	answers, err := fanout.Run(ctx, names, o, func(ctx context.Context, node string, stdout, stderr io.Writer) (int, error) {
		return env.Remote.Run(ctx, node, line, stdout, stderr)
	})
	if err != nil {
		return err
	}
	leaveOutOtherForms(answers, parts)
	for _, a := range answers {
		for _, w := range a.Warnings {
			env.Warn("%s: %s", a.Node, w.Message)
		}
	}
	return Join(env.showAnswers(answers, parts), failuresOf(answers, env.global.errorFormat == errorJSON))
}

// readAnswer reads the part that a node has answered. With -o jsonl it is shown at once.
func (env *Env) readAnswer(a *fanout.Answer, parts map[string]output.Part) error {
	part, isPart, err := output.ReadPart(a.Out)
	format := env.shown.Format
	switch {
	case len(a.Out) == 0: // even an empty list is something
		a.Unreadable(errors.New("it has answered nothing"))
	case err != nil:
		a.Unreadable(err)
	case !isPart && format.ForMachines(), format.Kind == output.JSONL && (part.Columns != nil || part.Lines != nil):
		a.Unreadable(errors.New("its result is not in the format that was asked for"))
	case isPart && format.Kind == output.JSONL:
		return output.Merge(env.Out, []output.NodePart{{Node: a.Node, Part: part}}, env.shown.Options)
	case isPart:
		parts[a.Node] = part
	}
	return nil
}

// leaveOutOtherForms turns parts of another form than most into failures: what one node answers must not hide the others.
func leaveOutOtherForms(answers []fanout.Answer, parts map[string]output.Part) {
	count, usual := map[string]int{}, ""
	for _, a := range answers {
		if form := parts[a.Node].Form(); form != "" {
			if count[form]++; count[form] > count[usual] {
				usual = form
			}
		}
	}
	for i := range answers {
		if form := parts[answers[i].Node].Form(); form != "" && form != usual {
			answers[i].Unreadable(errors.New("its result has another form than that of other nodes"))
			delete(parts, answers[i].Node)
		}
	}
}

// showAnswers merges the views of nodes. Text is shown with the name of its node before each line.
func (env *Env) showAnswers(answers []fanout.Answer, parts map[string]output.Part) error {
	var views []output.NodePart
	for _, a := range answers {
		if part, ok := parts[a.Node]; ok {
			views = append(views, output.NodePart{Node: a.Node, Part: part})
			continue
		}
		lines := fanout.NewLineWriter(env.lines(env.Out, env.OutTerminal), env.mu, a.Node+" | ")
		if len(a.Out) == 0 || env.shown.Format.Kind == output.JSONL {
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

// lines returns a writer of lines of text from nodes. On a terminal none can look like another node's.
func (env *Env) lines(to io.Writer, terminal bool) io.Writer {
	if !terminal {
		return to
	}
	return safeLines{to}
}

type safeLines struct{ to io.Writer }

func (w safeLines) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.to, output.SanitizeText(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
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
		last.Message = output.Sanitize(last.Message)
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

// withNode adds the column of the node to those that flags may name.
func withNode(columns output.Columns) output.Columns {
	if columns == nil {
		return nil
	}
	return append(output.Columns{output.NodeColumn}, columns...)
}

// leaveNode leaves the column of the node to the process that merges the parts.
func (v *View) leaveNode() {
	isNode := func(name string) bool { return strings.EqualFold(strings.TrimSpace(name), output.NodeColumn) }
	if len(v.Columns) > 0 && slices.ContainsFunc(v.Columns, isNode) {
		v.Columns = slices.DeleteFunc(v.Columns, isNode)
	}
	if isNode(strings.TrimPrefix(v.Sort, "-")) {
		v.Sort = ""
	}
}
