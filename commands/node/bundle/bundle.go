// Package bundle collects what a report of a fault needs into one archive: parts of a node, each with a deadline and
// with its error where it cannot be had, as files and as a page that can be read offline.
//
// [Collect] runs the parts, [Bundle.Write] writes the archive. Between them secrets are removed from all that was
// collected ([redactor]); nothing is written before that. [Node] has the parts of a CRI runtime, [Host] those of its
// machine; a caller may add others.
//
// A bundle is made where things do not work, so that no part waits for another one, and one that does not end in time
// is left behind. It changes nothing on the node.
package bundle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/output"
)

// Part is one thing to collect.
type Part struct {
	Name    string        // one word or two
	Limit   time.Duration // how long it may take; 0: 10 s
	Collect func(context.Context, *Files) error
}

// textBytes is how much of one text is kept: a log, or a file of the host.
const textBytes = 2 << 20

// sizes are limits of what is collected, in bytes.
type sizes struct{ part, total, text int }

var defaultSizes = sizes{part: 16 << 20, total: 64 << 20, text: textBytes}

const (
	defaultLimit = 10 * time.Second
	// endGrace is how long a part may take to return when its time is over.
	endGrace = 500 * time.Millisecond
	// partsAtOnce is how many parts are collected at the same time. Most of them wait.
	partsAtOnce = 16
)

// Options say how a bundle is made.
type Options struct {
	Title   string // names the bundle, and the directory in the archive
	Now     func() time.Time
	KeepEnv bool // of environment variables whose names are not those of secrets
	// Done is called for each part that has ended; may be nil. Its calls do not overlap.
	Done func(Result)

	sizes sizes // 0: defaultSizes
}

// Result is how a part ended.
type Result struct {
	Part  string   `json:"part"`
	Files []string `json:"files"`
	Error string   `json:"error,omitempty"`
	Notes []string `json:"notes,omitempty"` // what was left out
	Took  float64  `json:"seconds"`
}

// Bundle is what was collected, without its secrets.
type Bundle struct {
	Results  []Result
	Removals []Removal

	o      Options
	at     time.Time
	files  []*file
	tables []*table
	spans  []*Span
	series []*Series
}

// file is a file of the bundle: a document, or a text.
type file struct {
	name     string
	part     string
	document any
	text     string
	form     form
	shown    bool // on the page
}

// table is a table on the page.
type table struct {
	Title string
	part  string
	output.Part
}

// Files takes what a part collects. Its methods may be called at the same time; what comes after the part's deadline is
// dropped.
type Files struct {
	mu     sync.Mutex
	part   string
	sizes  sizes
	total  *budget
	left   int
	closed bool
	files  []*file
	tables []*table
	spans  []*Span
	series []*Series
	notes  []string
	names  []string
}

// budget is what is left of the limit of the whole bundle.
type budget struct {
	mu   sync.Mutex
	left int
}

func (b *budget) take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.left {
		return false
	}
	b.left -= n
	return true
}

// add keeps a file that is within the limits of its part and of the bundle.
func (f *Files) add(one *file, size int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
	case size > f.left:
		f.notes = append(f.notes, fmt.Sprintf("%s is left out: a part has at most %d KiB", one.name, f.sizes.part>>10))
	case !f.total.take(size):
		f.notes = append(f.notes, fmt.Sprintf("%s is left out: a bundle has at most %d KiB", one.name, f.sizes.total>>10))
	default:
		one.part = f.part
		f.left -= size
		f.files = append(f.files, one)
	}
}

// Document adds a JSON document. Shown ones are on the page as well.
func (f *Files) Document(name string, text []byte, shown bool) error {
	document, err := decode(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	f.add(&file{name: name, document: document, shown: shown}, len(text))
	return nil
}

// Log adds a text that a program wrote. Of one that is too long the end is kept.
func (f *Files) Log(name string, text []byte) { f.text(name, text, prose) }

// Settings adds a configuration file; one in JSON is a document.
func (f *Files) Settings(name string, text []byte) {
	if document, err := decode(text); err == nil {
		f.add(&file{name: name, document: document, shown: true}, len(text))
		return
	}
	f.text(name, text, settings)
}

func (f *Files) text(name string, text []byte, kind form) {
	if len(text) > f.sizes.text {
		text = lastLines(text, f.sizes.text)
		f.Note("%s: only the last %d KiB", name, f.sizes.text>>10)
	}
	f.add(&file{name: name, text: escapes.ReplaceAllString(strings.ToValidUTF8(string(text), "\uFFFD"), ""), form: kind, shown: true}, len(text))
}

// escapes are what programs colour their logs with: in the middle of password=x it would not be seen.
var escapes = lazyregexp.New(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)`)

// lastLines returns the end of a text. It begins with a whole line, as half of a secret is not recognised.
func lastLines(text []byte, most int) []byte {
	text = text[max(len(text)-most-1, 0):]
	_, after, found := bytes.Cut(text, []byte("\n"))
	if !found {
		return text[min(1, len(text)):]
	}
	return after
}

// View adds what a view of package output shows: a document, and a table on the page where there is a title. Without
// one the document is there.
func (f *Files) View(name, title string, o output.Options, write func(io.Writer, output.Options) error) error {
	var document, rows bytes.Buffer
	o.Format = output.Format{Kind: output.JSON}
	if err := write(&document, o); err != nil {
		return err
	}
	if err := f.Document(name, document.Bytes(), title == ""); err != nil || title == "" {
		return err
	}
	o.Format, o.Part = output.Format{Kind: output.Table}, true
	if err := write(&rows, o); err != nil {
		return err
	}
	return f.Table(title, rows.Bytes())
}

// Table adds a table to the page, from what a view of package output writes with Options.Part.
func (f *Files) Table(title string, text []byte) error {
	part, ok, err := output.ReadPart(text)
	if err != nil || !ok {
		return errors.Join(err, errors.New("not a table: "+title))
	}
	f.table(title, part, len(text))
	return nil
}

func (f *Files) table(title string, part output.Part, size int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed && f.total.take(size) {
		f.tables = append(f.tables, &table{Title: title, part: f.part, Part: part})
	}
}

// Rows adds a table that is no view of package output.
func (f *Files) Rows(title string, columns []string, rows [][]string) {
	size := 0
	for _, cells := range rows {
		size += len(strings.Join(cells, " "))
	}
	f.table(title, output.NewPart(columns, rows), size)
}

// Draw adds what the page draws.
func (f *Files) Draw(spans []*Span, series []*Series) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.spans, f.series = append(f.spans, spans...), append(f.series, series...)
	}
}

// Note adds a sentence about what is not in the part.
func (f *Files) Note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.notes = append(f.notes, fmt.Sprintf(format, args...))
	}
}

// Public adds names that are no secrets, whatever secret has the same value: those of pods, namespaces and images.
func (f *Files) Public(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.names = append(f.names, names...)
	}
}

// Collect collects the parts at the same time, and removes secrets from what there is. Its error is that of ctx: that of a
// part is in its result.
func Collect(ctx context.Context, parts []Part, o Options) (*Bundle, error) {
	b := &Bundle{o: o, at: o.Now(), Results: make([]Result, len(parts))}
	limits := cmp.Or(o.sizes, defaultSizes)
	total := &budget{left: limits.total}
	all := make([]*Files, len(parts))
	var work sync.WaitGroup
	var reporting sync.Mutex
	slots := make(chan struct{}, partsAtOnce)
	for i, p := range parts {
		all[i] = &Files{part: p.Name, sizes: limits, total: total, left: limits.part}
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			b.Results[i] = collect(ctx, p, all[i])
			reporting.Lock()
			defer reporting.Unlock()
			if o.Done != nil && ctx.Err() == nil {
				o.Done(b.Results[i])
			}
		})
	}
	work.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.redact(all)
	return b, nil
}

// collect runs one part to its end, or until its time is over.
func collect(ctx context.Context, p Part, f *Files) Result {
	limit := p.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	late := fmt.Errorf("not done within %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	start, ended := time.Now(), make(chan error, 1)
	go func() {
		defer func() {
			if cause := recover(); cause != nil { // the other parts are worth having
				ended <- fmt.Errorf("a fault of crishim: %v", cause)
			}
		}()
		ended <- p.Collect(ctx, f)
	}()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		grace := time.NewTimer(endGrace)
		defer grace.Stop()
		select {
		case err = <-ended:
		case <-grace.C: // it may hang in the kernel
			err = context.Cause(ctx)
		}
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, late) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	r := Result{Part: p.Name, Notes: f.notes, Took: time.Since(start).Round(time.Millisecond).Seconds(), Files: []string{}}
	if err != nil {
		r.Error = err.Error()
	}
	for _, one := range f.files {
		r.Files = append(r.Files, one.name)
	}
	return r
}

// redact removes secrets from all that was collected: first by names and forms, then what that has found from everything.
func (b *Bundle) redact(all []*Files) {
	r := newRedactor(b.o.KeepEnv)
	for _, f := range all {
		r.publish(f.names...)
		b.files, b.tables = append(b.files, f.files...), append(b.tables, f.tables...)
		b.spans, b.series = append(b.spans, f.spans...), append(b.series, f.series...)
	}
	for _, one := range b.files {
		r.file = one.name
		if one.document != nil {
			one.document = r.tree("", one.document)
		} else {
			one.text = r.text(one.text, one.form)
		}
	}
	r.file = "index.html"
	b.texts(func(text string) string { return r.text(text, prose) })
	r.learn()
	for _, one := range b.files {
		r.file = one.name
		one.name = r.without(one.name)
		if one.document != nil {
			one.document = r.againTree("", one.document)
		} else {
			one.text = r.againText(one.text)
		}
	}
	r.file = "index.html"
	b.texts(func(text string) string { return r.again("a table or a plot", text) })
	b.Removals = r.removals()
}

// texts changes all text of the page that is in no file.
func (b *Bundle) texts(change func(string) string) {
	in := func(texts []string) {
		for i, text := range texts {
			texts[i] = change(text)
		}
	}
	for i := range b.Results {
		r := &b.Results[i]
		r.Error = change(r.Error)
		in(r.Notes)
		in(r.Files)
	}
	for _, t := range b.tables {
		for _, row := range t.Rows {
			in(row.Cells)
		}
	}
	for _, s := range b.spans {
		s.Name, s.Text = change(s.Name), change(s.Text)
	}
	for _, s := range b.series {
		s.Name = change(s.Name)
	}
}
