// Package fanout runs one command line on many nodes at once. Run calls a Runner for each node:
// crishim itself over an ssh endpoint, say, or an exec in a pod there. It bounds how many run side by
// side and how long each may take, keeps what each wrote, and tells results and failures apart. What
// the results mean is not its business: output.Merge makes one view of them.
package fanout

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
	"time"
)

// Runner runs the command line on one node, with nothing on its standard input, and returns its exit
// status. It returns soon after ctx has ended, and leaves nothing behind. An error is why the command
// line could not be run at all. What crishim itself has to say it writes as records to stderr.
type Runner func(ctx context.Context, node string, stdout, stderr io.Writer) (status int, err error)

// Options are how a command line is run on many nodes.
type Options struct {
	Parallel int           // nodes at once; 0: all
	Deadline time.Duration // of each node; 0: none
	// Lines passes results on to Out as they come, each line with the name of its node, where they are
	// text. Else an Answer has them.
	Lines    bool
	Out, Err io.Writer
	// Answered is called with each answer as it comes, one after the other, and may change it.
	Answered func(*Answer) error
}

// Answer is what came of one node.
type Answer struct {
	Node     string
	Out      []byte // its results; nil with Options.Lines
	Warnings []Failure
	// Failure is why the command line failed there; nil: it did not.
	Failure *Failure
}

// maxResult is how much of the results of a node is kept.
const maxResult = 64 << 20

// Run runs the command line on all nodes and returns their answers in the order of the nodes. The
// error is that of ctx, or of writing.
func Run(ctx context.Context, nodes []string, o Options, run Runner) ([]Answer, error) {
	answers := make([]Answer, len(nodes))
	free := make(chan struct{}, cmp.Or(o.Parallel, max(len(nodes), 1)))
	var writing, answering sync.Mutex
	var running sync.WaitGroup
	var failed error // guarded by answering
	for i, node := range nodes {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			defer func() { <-free }()
			answer := o.runOn(ctx, node, &writing, run)
			answering.Lock()
			defer answering.Unlock()
			if answers[i] = answer; o.Answered != nil && ctx.Err() == nil {
				failed = cmp.Or(failed, o.Answered(&answers[i]))
			}
		})
	}
	running.Wait()
	return answers, cmp.Or(ctx.Err(), failed)
}

// runOn runs the command line on one node; writing guards Out and Err.
func (o *Options) runOn(ctx context.Context, node string, writing *sync.Mutex, run Runner) Answer {
	// No deadline of the context, which calls would take for theirs and end a little earlier.
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.Deadline > 0 {
		defer time.AfterFunc(o.Deadline, cancel).Stop()
	}
	results := &limitedBuffer{}
	lines := NewLineWriter(o.Out, writing, node+" | ")
	said := &recordReader{others: NewLineWriter(o.Err, writing, node+" | ")}
	var stdout io.Writer = results
	if o.Lines {
		stdout = lines
	}
	status, err := run(limited, node, stdout, said)
	err = errors.Join(err, lines.Flush(), said.flush())

	a := Answer{Node: node, Warnings: said.warnings}
	if !o.Lines {
		a.Out = results.Bytes()
	}
	switch {
	case ctx.Err() == nil && limited.Err() != nil && (status != 0 || err != nil):
		message := "no answer within " + o.Deadline.String()
		if err != nil && !errors.Is(err, context.Canceled) { // the runner knows what it has waited for
			message += ": " + err.Error()
		}
		a.fail("deadline_exceeded", message)
	case err != nil:
		a.fail("failed", err.Error())
		var hinter interface{ Hint() string }
		if errors.As(err, &hinter) {
			a.Failure.Hint = hinter.Hint()
		}
	case results.exceeded:
		a.fail("failed", fmt.Sprintf("its result has more than %d MiB", maxResult>>20))
	case status != 0 && len(said.failures) == 0:
		a.Failure = &Failure{Code: "failed", Message: fmt.Sprintf("exit status %d", status)}
	case status != 0:
		a.Failure = oneOf(said.failures)
	}
	if a.Failure != nil {
		a.Failure.Node = node
	}
	return a
}

// fail drops what a node has answered.
func (a *Answer) fail(code, message string) {
	a.Failure, a.Out = &Failure{Node: a.Node, Code: code, Message: message}, nil
}

// Unreadable notes that the results of a node are of no form that is known here.
func (a *Answer) Unreadable(err error) {
	if a.Out = nil; a.Failure == nil {
		a.fail("failed", err.Error())
	}
}

// oneOf makes one failure, of one line, of those that a node has written.
func oneOf(failures []Failure) *Failure {
	var messages []string
	for _, f := range failures {
		messages = append(messages, strings.NewReplacer(":\n  ", ": ", "\n  ", "; ", "\n", " ").Replace(f.Message))
	}
	one := failures[0]
	one.Message = strings.Join(slices.Compact(messages), "; ")
	return &one
}

// Failure is one error or warning, as --error-format=json shows it.
type Failure struct {
	Node      string `json:"node,omitempty"`
	Code      string `json:"code"`
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	Operation string `json:"operation,omitempty"`
	Endpoint  string `json:"endpoint,omitempty"`
}

// A record is a line of stderr with a Failure below one of these keys, behind a byte that a TextWriter
// never passes on.
const (
	RecordError   = "error"
	RecordWarning = "warning"

	recordMark = 0x1e
)

// WriteRecord writes a failure for the reader at the other end.
func WriteRecord(w io.Writer, kind string, f Failure) error {
	text, err := json.Marshal(map[string]Failure{kind: f})
	if err == nil {
		_, err = w.Write(slices.Concat([]byte{recordMark}, text, []byte("\n")))
	}
	return err
}

// TextWriter writes text next to records, in which nothing can be taken for one.
type TextWriter struct{ To io.Writer }

func (w TextWriter) Write(p []byte) (int, error) {
	if _, err := w.To.Write(bytes.ReplaceAll(p, []byte{recordMark}, []byte(`\x1e`))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// recordReader takes the records out of what a node writes to stderr and passes on the rest.
type recordReader struct {
	others             *LineWriter
	rest               []byte // an unfinished record
	failures, warnings []Failure
}

// maxRecords is how many failures of one node are kept, and maxRecord how long one may be.
const (
	maxRecords = 100
	maxRecord  = 64 << 10
)

func (r *recordReader) Write(p []byte) (int, error) {
	for part := range bytes.Lines(p) {
		if len(r.rest) == 0 { // a record may follow a line that a container has not ended
			mark := bytes.IndexByte(part, recordMark)
			if mark < 0 {
				mark = len(part)
			}
			if _, err := r.others.Write(part[:mark]); err != nil {
				return 0, err
			}
			part = part[mark:]
		}
		if r.rest = append(r.rest, part...); bytes.HasSuffix(r.rest, []byte("\n")) || len(r.rest) > maxRecord {
			if err := r.read(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

// read reads a record that is whole. What is none is passed on, too.
func (r *recordReader) read() error {
	text := r.rest
	r.rest = nil
	if len(text) == 0 {
		return nil
	}
	var record map[string]Failure
	if err := json.Unmarshal(text[1:], &record); err != nil {
		_, err := r.others.Write(text)
		return err
	}
	if f, ok := record[RecordError]; ok && len(r.failures) < maxRecords {
		r.failures = append(r.failures, f)
	}
	if f, ok := record[RecordWarning]; ok && len(r.warnings) < maxRecords {
		r.warnings = append(r.warnings, f)
	}
	return nil
}

func (r *recordReader) flush() error {
	return errors.Join(r.read(), r.others.Flush())
}

// limitedBuffer keeps what is written up to a limit, and refuses what is more.
type limitedBuffer struct {
	bytes.Buffer
	exceeded bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxResult {
		b.exceeded = true
		return 0, errors.New("the result is too long")
	}
	return b.Buffer.Write(p)
}

// MaxLine is the longest line that is kept until its end. What writes it may never end it.
const MaxLine = 16 << 20

// LineWriter writes whole lines, each with a prefix, so that those of several writers do not mix.
type LineWriter struct {
	to     io.Writer
	lock   *sync.Mutex // shared by all that write to the same place
	prefix string
	rest   []byte // an unfinished line
}

// NewLineWriter makes a writer of lines with a prefix.
func NewLineWriter(to io.Writer, lock *sync.Mutex, prefix string) *LineWriter {
	return &LineWriter{to: to, lock: lock, prefix: prefix}
}

func (w *LineWriter) Write(p []byte) (int, error) {
	end := bytes.LastIndexByte(p, '\n') + 1 // there is none in w.rest
	if end > 0 {
		end += len(w.rest)
	}
	w.rest = append(w.rest, p...)
	if end == 0 && len(w.rest) >= MaxLine {
		w.rest = append(w.rest, '\n')
		end = len(w.rest)
	}
	if end == 0 {
		return len(p), nil
	}
	var b bytes.Buffer
	for line := range bytes.Lines(w.rest[:end]) {
		b.WriteString(w.prefix)
		b.Write(line)
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	_, err := w.to.Write(b.Bytes())
	w.rest = bytes.Clone(w.rest[end:])
	return len(p), err
}

// Flush ends an unfinished line.
func (w *LineWriter) Flush() error {
	if len(w.rest) == 0 {
		return nil
	}
	_, err := w.Write([]byte("\n"))
	return err
}
