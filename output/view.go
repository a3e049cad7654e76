package output

import (
	"bytes"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
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
	items func() ([][]byte, error)    // its elements as compact JSON
	wrap  func(items [][]byte) []byte // makes a document of them; nil: the only one is it
	names func() []string             // how to refer to each element
	ids   func() []string             // for Quiet
	table func(w io.Writer, o Options) error
	// fallback is what Default means for this view.
	fallback Kind
}

// messages are the elements of a view of messages.
func messages[M proto.Message](all []M) func() ([][]byte, error) {
	return func() ([][]byte, error) { return encodeAll(all, func(m M) ([]byte, error) { return marshalProto(m) }) }
}

// values are the elements of a view of what is no message, in the words of their JSON tags.
func values[T any](all []T) func() ([][]byte, error) {
	return func() ([][]byte, error) { return encodeAll(all, func(v T) ([]byte, error) { return compactJSON(v) }) }
}

func encodeAll[T any](all []T, encode func(T) ([]byte, error)) ([][]byte, error) {
	items := make([][]byte, len(all))
	for i, one := range all {
		b, err := encode(one)
		if err != nil {
			return nil, err
		}
		items[i] = b
	}
	return items, nil
}

// list makes the document {"key":[items]}.
func list(key string) func([][]byte) []byte {
	return func(items [][]byte) []byte {
		return slices.Concat([]byte(`{"`+key+`":[`), bytes.Join(items, []byte(",")), []byte("]}"))
	}
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
	switch {
	case kind == Name && v.names == nil:
		return nil
	case kind == Name:
		return writeLines(w, each(v.names(), Sanitize)) // one that a person could type stays as it is
	case (kind == Table || kind == Wide) && v.table != nil:
		o.Format.Kind = kind
		return v.table(w, o)
	}
	items, err := v.items()
	if err != nil {
		return err
	}
	if kind == JSONL {
		return writeLines(w, each(items, func(item []byte) string { return string(EscapeJSON(item)) }))
	}
	var root []byte
	if v.wrap != nil {
		root = v.wrap(items)
	} else {
		root = items[0]
	}
	if kind == Table || kind == Wide {
		kind = YAML
	}
	return renderDocument(w, root, kind, o.Format.compiled)
}

// writeLines writes all lines in one call, so that a broken pipe is seen once.
func writeLines(w io.Writer, lines []string) error {
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(l)
		b.WriteByte('\n')
	}
	_, err := w.Write(b.Bytes())
	return err
}

// each applies f to every row.
func each[T, U any](rows []T, f func(T) U) []U {
	out := make([]U, len(rows))
	for i, r := range rows {
		out[i] = f(r)
	}
	return out
}

// Message writes any CRI message as a document; its default format is JSON.
func Message(w io.Writer, m proto.Message, o Options) error {
	return render(w, view{fallback: JSON, items: messages([]proto.Message{m})}, o)
}

// Value writes any value that encoding/json can encode, such as a view type of
// this package; table says how people see it, and may be nil.
func Value(w io.Writer, value any, o Options, table func(w io.Writer, o Options) error) error {
	v := view{fallback: JSON, items: values([]any{value}), table: table}
	if table != nil {
		v.fallback = Table
	}
	return render(w, v, o)
}
