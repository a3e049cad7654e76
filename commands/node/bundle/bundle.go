// Package bundle collects the data for a bug report into one archive: a JSON document, an HTML page that needs no
// network, and logs. [Report.Collect] runs the parts, each with a deadline, and [Report.Write] writes the archive.
//
// The bundle only has fields that are known to be harmless: views.go lists the fields of the runtime's messages, host.go
// lists files of the host and the keys of configuration files. Everything else is omitted unless the user asks for it.
package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	_ "embed" // for page.html
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/crishim/crishim/output"
)

// Report is the content of a bundle.
type Report struct {
	Title      string
	Time       time.Time
	Added      []string // optional data that the user asked for
	Crishim    string
	Endpoint   string
	Runtime    string // name and version
	Parts      []Result
	Findings   []Finding
	Doctor     []output.Finding
	Status     message
	Pods       []message
	Containers []message
	Images     []message
	Events     []Event
	Host       map[string]string            // contents of hostFigures by path, and the free space of dataDirs as "df PATH"
	Config     map[string]map[string]string // values of configKeys, by file and key

	Files []File `json:"-"` // logs, and configuration files with --keep-config
}

// Finding is a problem of a pod or of the node that `crishim why` reports, and its cause.
type Finding struct {
	Severity, Code, Where string
	Time                  time.Time `json:",omitzero"`
	Text                  string    `json:",omitempty"` // omitted if the text may quote a container or a manifest; --logs all keeps it
}

type Event struct {
	Time     time.Time
	Where    string
	Reason   string
	Attempt  uint32 `json:",omitempty"`
	ExitCode int32  `json:",omitempty"`
	Signal   string `json:",omitempty"`
	Message  string `json:",omitempty"` // omitted unless --logs all is given
}

// File is a text file of the bundle.
type File struct{ Name, Text string }

// Part collects one kind of data, within Limit or 10 s.
type Part struct {
	Name    string
	Limit   time.Duration
	Collect func(context.Context) (add func(*Report), err error)
}

// Result is the result of a part.
type Result struct {
	Part    string
	Err     error  `json:"-"`
	Error   string `json:",omitempty"` // text of Err
	Seconds float64
}

// Collect runs all parts concurrently and adds their results to the report. It returns the error of ctx; the error of a
// part is in the part's Result.
func (r *Report) Collect(ctx context.Context, parts []Part, done func(Result)) error {
	results := make([]Result, len(parts))
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
			results[i] = Result{Part: p.Name, Seconds: time.Since(start).Round(time.Millisecond).Seconds()}
			if err != nil {
				results[i].Err, results[i].Error = err, err.Error()
			}
			if ctx.Err() == nil {
				done(results[i])
			}
		})
	}
	work.Wait()
	r.Parts = append(r.Parts, results...)
	return ctx.Err()
}

// run runs a part in a goroutine. A part may hang in a system call, which ignores ctx. run therefore returns half a second
// after the limit even if the goroutine still runs.
func (p Part) run(ctx context.Context) (func(*Report), error) {
	limit := cmp.Or(p.Limit, 10*time.Second)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	var add func(*Report)
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if cause := recover(); cause != nil { // the other parts are still useful
				err = fmt.Errorf("a fault of crishim: %v", cause)
			}
		}()
		add, err = p.Collect(ctx)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(500 * time.Millisecond):
			return nil, context.Cause(ctx)
		}
	}
	return add, err
}

//go:embed page.html
var page string

// date formats a time.Time, or the time of a CRI message: protojson encodes its nanoseconds as a string.
func date(at any) string {
	t, _ := at.(time.Time)
	if text, ok := at.(string); ok {
		nanoseconds, _ := strconv.ParseInt(text, 10, 64)
		t = time.Unix(0, nanoseconds).UTC()
	}
	if t.UnixNano() <= 0 {
		return ""
	}
	return t.Format(time.RFC3339)
}

// Write writes the report as a gzipped tar archive. Its files are in one directory, and only the owner may read them.
func (r *Report) Write(w io.Writer) error {
	document, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	t, err := template.New("page").Funcs(template.FuncMap{"date": date}).Parse(page)
	if err != nil {
		return err
	}
	var html bytes.Buffer
	if err := t.Execute(&html, r); err != nil {
		return err
	}
	zipped, at := gzip.NewWriter(w), time.Now().Truncate(time.Second) // tar rounds to the nearest second, which may be in the future
	archive := tar.NewWriter(zipped)
	err = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: r.Title + "/", Mode: 0o700, ModTime: at})
	files := append([]File{{"index.html", html.String()}, {"bundle.json", string(output.EscapeJSON(document)) + "\n"}}, r.Files...)
	for _, f := range files {
		err = cmp.Or(err, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: r.Title + "/" + f.Name, Mode: 0o600, Size: int64(len(f.Text)), ModTime: at}))
		_, failed := io.WriteString(archive, f.Text)
		err = cmp.Or(err, failed)
	}
	return cmp.Or(err, archive.Close(), zipped.Close()) // the first error only: a full disk fails every call with the same error
}
