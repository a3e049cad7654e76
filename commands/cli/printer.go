package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli/progress"
	"github.com/crishim/crishim/output"
)

// Printer writes results to standard output, and notes, warnings and errors to standard error. Each of several nodes
// has its own Printer, whose output is collected.
type Printer struct {
	Out, Err                 io.Writer
	OutTerminal, ErrTerminal bool
	Compat                   bool // results and messages look like crictl's

	process     *Process
	mu          *sync.Mutex // guards Out and Err, so that lines do not mix
	debug       bool        // --debug
	color       string      // --color
	errorFormat string      // --error-format
	node        string      // name of one of several nodes or endpoints; "" for a single one
	all         *Printer    // of all nodes; nil unless there are several
	try         bool        // changes of several nodes are only shown, because --yes was not given
}

const errorJSON = "json" // of --error-format

// NewPrinter returns a printer to the streams of a process.
func NewPrinter(p *Process) *Printer {
	return &Printer{Out: p.Out, Err: p.Err, OutTerminal: p.OutTerminal, ErrTerminal: p.ErrTerminal, process: p, mu: new(sync.Mutex)}
}

// forNode returns a printer for one of several nodes, which writes to out and err.
func (p *Printer) forNode(node string, out, err io.Writer, try bool) *Printer {
	return &Printer{Out: out, Err: err, Compat: p.Compat, process: p.process, mu: new(sync.Mutex), debug: p.debug, color: p.color, errorFormat: p.errorFormat, node: node, all: p, try: try}
}

// To returns a copy of the printer that writes to out and err.
func (p *Printer) To(out, err io.Writer) *Printer {
	other := *p
	other.Out, other.Err = out, err
	return &other
}

// DryRun reports whether changes are only shown.
func (p *Printer) DryRun() bool { return p.try }

// Now returns the present time, for the ages in tables.
func (p *Printer) Now() time.Time { return p.process.Now() }

// Width returns the terminal's width; 0 means unlimited.
func (p *Printer) Width() int {
	if !p.OutTerminal || p.process.Width == nil {
		return 0
	}
	return p.process.Width()
}

// Color reports whether results have colours.
func (p *Printer) Color() bool {
	switch p.color {
	case "always":
		return true
	case "never":
		return false
	}
	return p.OutTerminal && p.process.getenv("NO_COLOR") == "" && !p.dumb() && !p.Compat
}

// dumb reports whether the terminal can only write lines.
func (p *Printer) dumb() bool { return p.process.getenv("TERM") == "dumb" }

// Progress returns the options for drawing the progress of pulls.
func (p *Printer) Progress() progress.Options {
	return progress.Options{Out: p.Err, Terminal: p.ErrTerminal && !p.dumb(), Width: p.Width()}
}

// progressLines returns the options for writing the progress of pulls as lines. A redrawn display would mix with the
// messages about other pods.
func (p *Printer) progressLines() progress.Options {
	return progress.Options{Out: NewPrefixWriter(p.Err, p.mu, "")}
}

// Say writes one line of a result.
func (p *Printer) Say(format string, args ...any) error {
	return p.SaySpans(Span{Text: fmt.Sprintf(format, args...)})
}

// Span is a part of a line with its colour.
type Span struct {
	Tone output.Tone
	Text string
}

// SaySpans writes one line of a result, in one write so that lines of parallel work do not mix.
func (p *Printer) SaySpans(spans ...Span) error {
	var line strings.Builder
	colours := output.Options{Color: p.Color()}
	for _, s := range spans {
		line.WriteString(colours.Paint(s.Tone, output.Sanitize(s.Text)))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := fmt.Fprintln(p.Out, line.String())
	return err
}

// Note writes one line to stderr without a prefix.
func (p *Printer) Note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.Err, output.Sanitize(fmt.Sprintf(format, args...)))
}

// Debugf writes one line to stderr when --debug is on.
func (p *Printer) Debugf(format string, args ...any) {
	if p.debug {
		p.Note("debug: "+format, args...)
	}
}

// Warn writes a warning to stderr. Sentence formats an error that is wrapped with %w.
func (p *Printer) Warn(format string, args ...any) {
	f := failure{Code: "warning", Message: p.Sentence(fmt.Errorf(format, args...))}
	if p.all != nil {
		f.Node = p.node
	}
	p.say("warning", f)
}

// fail writes one failure to stderr.
func (p *Printer) fail(f failure) { p.say("error", f) }

// say writes one failure or warning to standard error, which all nodes share.
func (p *Printer) say(kind string, f failure) {
	if p.all != nil {
		p = p.all
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.errorFormat == errorJSON {
		if text, err := json.Marshal(map[string]failure{kind: f}); err == nil {
			fmt.Fprintf(p.Err, "%s\n", output.EscapeJSON(text))
			return
		}
	}
	if f.Node != "" {
		f.Message = output.Sanitize(f.Node) + ": " + f.Message
	}
	if kind == "warning" {
		f.Message = "warning: " + f.Message
	}
	fmt.Fprintf(p.Err, "crishim: %s\n", f.Message)
	if f.usage != "" {
		fmt.Fprintf(p.Err, "usage: %s\n", f.usage)
	}
	WriteHint(p.Err, f.Hint)
}

// describe returns the fields of an error. The code is the gRPC code, or crishim's own for errors without a call
// (docs/exit-codes.md).
func (p *Printer) describe(err error) failure {
	var node *nodeError
	if errors.As(err, &node) {
		return node.failure
	}
	f := failure{Code: "failed", Message: p.Sentence(err), Hint: HintOf(err)}
	var usage *UsageError
	var call *client.Error
	if errors.As(err, &usage) {
		f.usage = usage.Usage
	}
	if errors.As(err, &call) {
		f.Operation, f.Endpoint = call.Op, call.Endpoint
	}
	code := status.Code(err)
	switch {
	case isUsage(err):
		f.Code = "usage"
	case errors.As(err, new(inputError)):
		f.Code = "invalid_input"
	case code != codes.OK && code != codes.Unknown:
		f.Code = strings.ToLower(wordStart.ReplaceAllString(code.String(), "${1}_$2"))
	}
	return f
}

// Sentence returns an error for people: sanitised, in one line, followed by the error's list if it has any, and
// without gRPC's prefix unless --debug is given.
func (p *Printer) Sentence(err error) string {
	text := err.Error()
	if !p.debug {
		text = WithoutStatusPrefix(err)
	}
	var lister interface{ List() []string }
	var list []string
	if errors.As(err, &lister) {
		if head, found := strings.CutSuffix(text, "\n  "+strings.Join(lister.List(), "\n  ")); found {
			text, list = head, lister.List()
		}
	}
	lines := []string{output.Sanitize(strings.TrimRight(text, "\r\n"))}
	for _, line := range list {
		lines = append(lines, "  "+output.Sanitize(line))
	}
	return strings.Join(lines, "\n")
}

// MaxConcurrent limits parallel operations of one verb, such as removals, stops and pulls.
const MaxConcurrent = 8

// InParallel calls do for all items, up to limit at once. Output and failures are in the order of the items. With
// --compat=crictl, output is in the order of completion.
func InParallel[T any](p *Printer, items []T, limit int, do func(*Printer, T) error) error {
	errs := make([]error, len(items)+1)
	said := make([]bytes.Buffer, len(items))
	done := make([]chan struct{}, len(items))
	for i := range items {
		done[i] = make(chan struct{})
	}
	var work errgroup.Group
	work.SetLimit(limit)
	go func() {
		for i, item := range items {
			work.Go(func() error {
				defer close(done[i])
				own := p
				if !p.Compat {
					own = p.To(&said[i], p.Err)
				}
				errs[i] = do(own, item)
				return nil
			})
		}
	}()
	for i := range items {
		<-done[i]
		if _, err := p.Out.Write(said[i].Bytes()); err != nil {
			errs[len(items)] = err
		}
	}
	return Join(errs...)
}
