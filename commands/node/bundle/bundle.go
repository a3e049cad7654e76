// Package bundle collects what a report of a fault needs into one archive: a document, a page that opens without a network,
// and logs. [Collect] runs the parts, each with a deadline, and [Report.Write] writes the archive.
//
// The bundle has fields that are known to be harmless: views.go lists the fields of the runtime's messages, config.go the keys of
// configuration files. Everything else is left out unless the user asks for it.
package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	_ "embed" // the page
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crishim/crishim/output"
)

// Report is the content of a bundle.
type Report struct {
	Title      string
	Time       Time
	Added      []string // what is in it because the user asked for it
	Crishim    string
	Endpoint   string
	Runtime    *Runtime `json:",omitempty"`
	Parts      []Result
	Findings   []Finding
	Doctor     []output.Finding
	Endpoints  []output.Endpoint
	Conditions []Condition
	Pods       []Pod
	Containers []Container
	Images     []Image
	Disks      []Disk
	Events     []Event
	Host       *Host
	Config     []Config

	Files []File `json:"-"` // logs, and configuration files with --keep-config
}

// Runtime is the runtime's version.
type Runtime struct{ Name, Version, API string }

// Finding is what is not as it should be.
type Finding struct {
	Severity, Code, Where string
	Time                  Time   `json:",omitempty"`
	Text                  string `json:",omitempty"` // left out with --logs none: it may quote a container
}

// Event is something that happened to a pod or container.
type Event struct {
	Time     Time
	Where    string
	Reason   string
	Attempt  uint32 `json:",omitempty"`
	ExitCode int32  `json:",omitempty"`
	Signal   string `json:",omitempty"`
	Message  string `json:",omitempty"` // with --logs all: it may quote a container
}

// File is a text of the bundle.
type File struct{ Name, Text string }

// Part is one thing to collect.
type Part struct {
	Name    string
	Limit   time.Duration // how long it may take; 0: 10 s
	Collect func(context.Context) (add func(*Report), err error)
}

// Result is how a part ended.
type Result struct {
	Part    string
	Error   string `json:",omitempty"`
	Seconds float64
}

const (
	defaultLimit = 10 * time.Second
	// endGrace is how long a part may take to return when its time is over.
	endGrace = 500 * time.Millisecond
)

// Collect collects the parts into the report at the same time. Its error is that of ctx: that of a part is in its result.
func (r *Report) Collect(ctx context.Context, parts []Part, done func(Result)) error {
	r.Parts = make([]Result, len(parts))
	var mu sync.Mutex
	var work sync.WaitGroup
	for i, p := range parts {
		work.Go(func() {
			start := time.Now()
			add, err := p.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			if add != nil {
				add(r)
			}
			r.Parts[i] = Result{Part: p.Name, Seconds: time.Since(start).Round(time.Millisecond).Seconds()}
			if err != nil {
				r.Parts[i].Error = err.Error()
			}
			if ctx.Err() == nil {
				done(r.Parts[i])
			}
		})
	}
	work.Wait()
	slices.SortStableFunc(r.Events, func(a, b Event) int { return cmp.Compare(a.Time, b.Time) })
	return ctx.Err()
}

// run runs a part to its end, or until its time is over: it may hang in the kernel.
func (p Part) run(ctx context.Context) (func(*Report), error) {
	limit := cmp.Or(p.Limit, defaultLimit)
	late := fmt.Errorf("not done within %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	type answer struct {
		add func(*Report)
		err error
	}
	ended := make(chan answer, 1)
	go func() {
		defer func() {
			if cause := recover(); cause != nil { // the other parts are worth having
				ended <- answer{nil, fmt.Errorf("a fault of crishim: %v", cause)}
			}
		}()
		add, err := p.Collect(ctx)
		ended <- answer{add, err}
	}()
	var a answer
	select {
	case a = <-ended:
	case <-ctx.Done():
		select {
		case a = <-ended:
		case <-time.After(endGrace):
			return nil, context.Cause(ctx)
		}
	}
	if a.err != nil && ctx.Err() != nil && !errors.Is(a.err, late) {
		a.err = fmt.Errorf("%w: %w", context.Cause(ctx), a.err)
	}
	return a.add, a.err
}

//go:embed page.html
var page string

// Write writes the report as a gzipped tar archive, whose files are in one directory and their owner's alone.
func (r *Report) Write(w io.Writer) error {
	document, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	t, err := template.New("page").Funcs(template.FuncMap{"join": func(s []string) string { return strings.Join(s, ", ") }, "short": func(id string) string { return id[:min(len(id), 13)] }}).Parse(page)
	if err != nil {
		return err
	}
	var html bytes.Buffer
	if err := t.Execute(&html, r); err != nil {
		return err
	}
	zipped, at := gzip.NewWriter(w), time.Now().Truncate(time.Second) // tar would round it up, into the future
	archive := tar.NewWriter(zipped)
	err = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: r.Title + "/", Mode: 0o700, ModTime: at})
	files := append([]File{{"index.html", html.String()}, {"bundle.json", string(output.EscapeJSON(document)) + "\n"}}, r.Files...)
	for _, f := range files {
		if err == nil {
			err = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: r.Title + "/" + f.Name, Mode: 0o600, Size: int64(len(f.Text)), ModTime: at})
		}
		if err == nil {
			_, err = io.WriteString(archive, f.Text)
		}
	}
	return cmp.Or(err, archive.Close(), zipped.Close()) // the same error, where the disk is full
}
