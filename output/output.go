// Package output renders CRI messages: as tables for people, and as JSON, YAML, names and templates for programs.
//
// The caller provides the data and an Options value. A renderer such as Containers, Pods or InspectContainers
// determines the layout. Renderers are pure: width, colour, time and time zone are parameters, and they neither call
// RPCs nor query the terminal.
//
// Machine formats are the CRI message in crictl's form (protojson with all fields, 64-bit integers as strings), with
// spacing and key order that are stable between builds. Tables may change and must not be parsed. Text from containers
// passes through Sanitize before it is printed in a table.
package output

import (
	"bytes"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Options control the presentation of a view. The zero value is the view's default format in UTC without colour.
type Options struct {
	Format    Format
	NoHeaders bool
	NoTrunc   bool     // show full ids and digests
	Quiet     bool     // print ids only, one per line
	Columns   []string // columns in this order; empty: the view's default
	Sort      string   // sort column; "-name" sorts in descending order; empty: the view's order
	Width     int      // terminal width in cells; 0: no limit
	Terminal  bool     // output goes directly to a terminal: ages are short
	Color     bool
	Now       time.Time      // reference time of ages
	Location  *time.Location // time zone; nil: UTC
	Digests   bool           // images: show the DIGEST column
	Pinned    bool           // images: show the PINNED column
	Crictl    bool           // crictl's columns and texts
	Verbose   bool           // crictl's multi-line texts for lists; needs Crictl
	Nodes     bool           // the view covers several nodes, see Merge

	// Pods are sandboxes by id. Tables and lists of names need them for containers without pod labels.
	Pods map[string]*runtimeapi.PodSandboxMetadata

	// Additional data for tables, see ContainerNeeds and PodNeeds. Missing data is shown as unknown.
	Statuses  map[string]*runtimeapi.ContainerStatusResponse  // by container id
	Sandboxes map[string]*runtimeapi.PodSandboxStatusResponse // by sandbox id
	Members   map[string][]*runtimeapi.Container              // containers by sandbox id
	Managed   map[string]ManagedPod                           // by sandbox id

	deleted bool // the rows are of deleted objects
}

func (o Options) location() *time.Location {
	if o.Location == nil {
		return time.UTC
	}
	return o.Location
}

// ForPeople reports whether the view is a table of a single node in crishim's own form, written directly to a terminal.
func (o Options) ForPeople() bool {
	return o.Terminal && !o.Nodes && !o.Crictl && !o.Quiet && !o.Format.ForMachines()
}

// view is data that can be shown in any format.
type view struct {
	fallback Kind                     // format that Default selects
	items    func() ([][]byte, error) // elements as compact JSON
	key      string                   // key of the list in the document; "" if the document has no list
	array    bool                     // several elements form an array; a single element is the document
	wrap     string                   // key of a single element in the document; "" if the element is the document
	ids      []string                 // ids of the elements for Quiet; nil: not a list with ids
	names    []string                 // reference of each element
	table    func(w io.Writer, o Options) error
	long     func(w io.Writer, o Options) error // crictl's multi-line text; may be nil
}

func messages[M proto.Message](all []M) func() ([][]byte, error) {
	return func() ([][]byte, error) { return encodeAll(all, func(m M) ([]byte, error) { return marshalProto(m) }) }
}

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

// document joins the elements to one JSON document. The fields key, array and wrap determine its form.
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

func render(w io.Writer, v view, o Options) error {
	if o.Quiet && v.ids != nil && !o.Format.ForMachines() { // -o takes precedence over -q, as in crictl
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

func (v view) writeReferences(w io.Writer, lines []string) error {
	if p, ok := w.(*Part); ok {
		p.texts = append(p.texts, each(lines, Sanitize)...)
		return nil
	}
	return writeLines(w, each(lines, Sanitize))
}

// writeLines writes all lines in one call, so that a broken pipe causes a single error.
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

// Message writes a CRI message as a document. The default format is JSON.
func Message(w io.Writer, m proto.Message, o Options) error {
	return render(w, view{fallback: JSON, items: messages([]proto.Message{m})}, o)
}

// Value writes any value that encoding/json can encode. table writes it for people and may be nil.
func Value(w io.Writer, value any, o Options, table func(w io.Writer, o Options) error) error {
	v := view{fallback: JSON, items: documents([]any{value}), table: table}
	if table != nil {
		v.fallback = Table
	}
	return render(w, v, o)
}

// values writes a list of values. The document has them under a single key, encoded by their JSON tags.
func values[T any](w io.Writer, key string, rows []T, columns []column[T], name func(T) string, o Options) error {
	names := each(rows, name)
	return render(w, view{
		fallback: Table, key: key, names: names, ids: names,
		items: documents(rows),
		table: func(w io.Writer, o Options) error { return writeTable(w, rows, columns, o) },
	}, o)
}
