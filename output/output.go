// Package output turns CRI messages into bytes: tables for people; JSON, YAML,
// names and templates for programs.
//
// A caller chooses the data and an Options value; a renderer such as
// Containers, Pods or InspectContainers chooses the looks. Renderers are pure:
// width, colour, time and time zone come in as values, no RPC is made and no
// terminal is asked.
//
// Machine formats are the CRI message itself in crictl's shape (protojson with
// every field present, 64-bit integers as strings), with spacing and key order
// that do not change between builds. Tables may change and must not be parsed;
// whatever a container controls passes Sanitize before it gets into one.
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
	Terminal  bool     // it is read there as it comes: ages are short
	Color     bool
	Now       time.Time      // ages count from it
	Location  *time.Location // zone of printed times; nil: UTC
	Digests   bool           // images: show the DIGEST column
	Pinned    bool           // images: show the PINNED column
	Crictl    bool           // crictl's own columns and texts
	Verbose   bool           // lists: crictl's texts of many lines, with Crictl
	Nodes     bool           // the view is that of several nodes, for Merge

	// Pods names the sandboxes of containers that do not say in their labels
	// which pod they are in, by sandbox id; for tables and names.
	Pods map[string]*runtimeapi.PodSandboxMetadata

	// What lists do not say, for tables: see ContainerNeeds and PodNeeds. What is missing is shown as unknown.
	Statuses  map[string]*runtimeapi.ContainerStatusResponse  // of containers, by id
	Sandboxes map[string]*runtimeapi.PodSandboxStatusResponse // by id
	Members   map[string][]*runtimeapi.Container              // of pods, by the sandbox's id
	Managed   map[string]ManagedPod                           // pods, by the sandbox's id

	deleted bool // rows of what is there no more
}

func (o Options) location() *time.Location {
	if o.Location == nil {
		return time.UTC
	}
	return o.Location
}

// ForPeople reports whether a table is read as it comes.
func (o Options) ForPeople() bool {
	return o.Terminal && !o.Nodes && !o.Crictl && !o.Quiet && !o.Format.ForMachines()
}

// view is one thing to show in any format.
type view struct {
	fallback Kind                     // what Default means for it
	items    func() ([][]byte, error) // its elements as compact JSON
	key      string                   // of the list that they are in the document; "" where there is no list
	array    bool                     // several make an array; else the only one is the document
	wrap     string                   // key of the only one in the document; "" where it is that itself
	ranks    []string                 // what the elements are sorted by; nil where their order is the caller's
	ids      []string                 // of its elements, for Quiet; nil: there is no such list
	names    []string                 // how to refer to each element
	table    func(w io.Writer, o Options) error
	long     func(w io.Writer, o Options) error // crictl's text of many lines; nil: it has none
}

// messages returns the elements of a view of messages.
func messages[M proto.Message](all []M) func() ([][]byte, error) {
	return func() ([][]byte, error) { return encodeAll(all, func(m M) ([]byte, error) { return marshalProto(m) }) }
}

// documents returns the elements of a view of values for encoding/json.
func documents[T any](all []T) func() ([][]byte, error) {
	return func() ([][]byte, error) { return encodeAll(all, func(v T) ([]byte, error) { return compactJSON(v) }) }
}

func encodeAll[T any](all []T, encode func(T) ([]byte, error)) (items [][]byte, err error) {
	items = make([][]byte, len(all))
	for i, one := range all {
		if items[i], err = encode(one); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func (v view) rank(i int) string {
	if v.ranks == nil {
		return ""
	}
	return v.ranks[i]
}

// document returns one document with these elements.
func (v view) document(items [][]byte) []byte {
	switch all := bytes.Join(items, []byte(",")); {
	case v.key != "":
		return slices.Concat([]byte(`{"`+v.key+`":[`), all, []byte("]}"))
	case v.array && len(items) != 1:
		return slices.Concat([]byte("["), all, []byte("]"))
	case v.wrap != "":
		return slices.Concat([]byte(`{"`+v.wrap+`":`), all, []byte("}"))
	default:
		return all
	}
}

// render writes v to w in the format that o asks for.
func render(w io.Writer, v view, o Options) error {
	if o.Quiet && v.ids != nil && !o.Format.ForMachines() { // a format is more than -q, as in crictl
		return v.writeReferences(w, v.ids)
	}
	kind := o.Format.Kind
	if kind == Default {
		kind = v.fallback
	}
	switch {
	case kind == Name:
		return v.writeReferences(w, v.names)
	case kind == Table && v.long != nil && o.Crictl && (o.Verbose || v.fallback == JSON):
		return v.long(w, o)
	case (kind == Table || kind == Wide) && v.table != nil:
		o.Format.Kind = kind
		return v.table(w, o)
	case kind == Table || kind == Wide:
		kind = YAML
	}
	items, err := v.items()
	if err != nil {
		return err
	}
	if p, ok := w.(*Part); ok {
		return p.addItems(v, items, kind)
	}
	if kind == JSONL {
		return writeLines(w, each(items, func(item []byte) string { return string(EscapeJSON(item)) }))
	}
	return renderDocument(w, v.document(items), kind, o.Format.compiled)
}

// writeReferences writes the ids or names of the elements. A name that a person could type stays as it is.
func (v view) writeReferences(w io.Writer, lines []string) error {
	if p, ok := w.(*Part); ok {
		p.addLines(v, lines)
		return nil
	}
	return writeLines(w, each(lines, Sanitize))
}

// writeLines writes all lines in one call, so that a broken pipe is seen once.
func writeLines(w io.Writer, lines []string) error {
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}

func each[T, U any](rows []T, f func(T) U) []U {
	out := make([]U, len(rows))
	for i, r := range rows {
		out[i] = f(r)
	}
	return out
}

// Message writes a CRI message as a document; its default format is JSON.
func Message(w io.Writer, m proto.Message, o Options) error {
	return render(w, view{fallback: JSON, items: messages([]proto.Message{m})}, o)
}

// Value writes any value that encoding/json can encode, such as a view type of
// this package; table says how people see it, and may be nil.
func Value(w io.Writer, value any, o Options, table func(w io.Writer, o Options) error) error {
	v := view{fallback: JSON, items: documents([]any{value}), table: table}
	if table != nil {
		v.fallback = Table
	}
	return render(w, v, o)
}

// values writes a list of values. Its document has the rows, by their JSON tags, below one key.
func values[T any](w io.Writer, key string, rows []T, columns []column[T], name func(T) string, o Options) error {
	names := each(rows, name)
	return render(w, view{
		fallback: Table, key: key, names: names, ids: names,
		items: documents(rows),
		table: func(w io.Writer, o Options) error { return writeTable(w, rows, columns, o) },
	}, o)
}
