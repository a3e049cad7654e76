package output

import (
	"io"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Options say how a view is to be shown. The zero value is the view's default
// format without colour, in UTC.
type Options struct {
	Format    Format
	NoHeaders bool
	NoTrunc   bool     // show ids and digests whole
	Quiet     bool     // ids only, one per line
	Columns   []string // names of columns, in this order; empty: the view's own
	Sort      string   // name of a column; "-name" sorts downwards; empty: the view's own order
	Width     int      // of the terminal in cells; 0: no limit
	Color     bool
	Now       time.Time      // ages count from it
	Location  *time.Location // zone of printed times; nil: UTC
	Digests   bool           // images: show the DIGEST column
	Pinned    bool           // images: show the PINNED column
	Crictl    bool           // stats: crictl's columns

	// Pods names the sandboxes of containers that do not say in their labels
	// which pod they are in, by sandbox id; for tables and names.
	Pods map[string]*runtimeapi.PodSandboxMetadata
}

func (o Options) location() *time.Location {
	if o.Location == nil {
		return time.UTC
	}
	return o.Location
}

// view is one thing to show in any format.
type view struct {
	root  func() ([]byte, error)   // the document as compact JSON
	items func() ([][]byte, error) // its elements, for jsonl
	names func() []string          // how to refer to each element
	ids   func() []string          // for Quiet
	table func(w io.Writer, o Options) error
	// fallback is what Default means for this view.
	fallback Kind
}

// render writes v to w in the format that o asks for.
func render(w io.Writer, v view, o Options) error {
	if o.Quiet && v.ids != nil {
		return writeLines(w, v.ids())
	}
	kind := o.Format.Kind
	if kind == Default {
		kind = v.fallback
	}
	switch kind {
	case Name:
		return writeLines(w, safe(v.names()))
	case JSONL:
		return renderLines(w, v)
	case Table, Wide, Default:
		o.Format.Kind = kind
		return v.table(w, o)
	}
	root, err := v.root()
	if err != nil {
		return err
	}
	return renderDocument(w, root, kind, o.Format.compiled)
}

// renderLines writes each element of v as one line of JSON.
func renderLines(w io.Writer, v view) error {
	items, err := v.items()
	if err != nil {
		return err
	}
	lines := make([]string, len(items))
	for i, item := range items {
		lines[i] = string(EscapeJSON(item))
	}
	return writeLines(w, lines)
}

// safe makes names fit for a terminal. One that a person could type stays as it is.
func safe(names []string) []string {
	for i, n := range names {
		names[i] = Sanitize(n)
	}
	return names
}

// writeLines writes all lines in one call, so that a broken pipe is seen once.
func writeLines(w io.Writer, lines []string) error {
	size := 0
	for _, l := range lines {
		size += len(l) + 1
	}
	b := make([]byte, 0, size)
	for _, l := range lines {
		b = append(append(b, l...), '\n')
	}
	_, err := w.Write(b)
	return err
}
