package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

// Part collects the view of one node. Renderers that receive it as their writer add rows, elements or lines to it.
// Merge writes the parts of all nodes as one view. Any other output goes to Text.
type Part struct {
	Node string
	Text io.Writer

	columns  []column[nodeRow]
	rows     []nodeRow
	texts    []string // elements of a document, or lines
	document bool     // texts are elements, not lines
	key      string   // key of the list in the document
}

type nodeRow struct {
	node  string
	cells []string
	tones []tone
	sort  string // key of Options.Sort
}

// NodeColumn is the key of the column or field for the node in a view of several nodes.
const NodeColumn = "node"

func (p *Part) Empty() bool { return p.columns == nil && !p.document && p.texts == nil }

func (p *Part) Write(b []byte) (int, error) { return p.Text.Write(b) }

func addTable[T any](p *Part, rows []T, columns []column[T], o Options) error {
	shown, err := choose(columns, o)
	if err != nil {
		return err
	}
	sort := -1
	if o.Sort != "" {
		name, _ := sortColumn(o)
		if sort, err = keys(columns).index(name); err != nil {
			return err
		}
	}
	for i, c := range shown {
		p.columns = append(p.columns, column[nodeRow]{
			name: c.name, named: c.named, shrink: c.shrink, least: c.least, start: c.start, spare: c.spare, prose: c.prose,
			value: func(r nodeRow, _ Options) string { return r.cells[i] },
			tone:  func(r nodeRow, _ Options) tone { return r.tones[i] },
		})
	}
	for _, row := range rows {
		r := nodeRow{node: p.Node, cells: each(shown, func(c column[T]) string { return c.value(row, o) })}
		r.tones = each(shown, func(c column[T]) tone {
			if c.tone == nil {
				return plain
			}
			return c.tone(row, o)
		})
		if sort >= 0 {
			r.sort = columns[sort].sortKey(row, o)
		}
		p.rows = append(p.rows, r)
	}
	return nil
}

// WithoutNode returns the options for the view of a single node, without the NODE column.
func (o Options) WithoutNode() Options {
	isNode := func(column string) bool { return key(strings.TrimSpace(column)) == NodeColumn }
	o.Columns = slices.DeleteFunc(slices.Clone(o.Columns), isNode)
	if isNode(strings.TrimPrefix(o.Sort, "-")) {
		o.Sort = ""
	}
	return o
}

func (p *Part) addItems(v view, items [][]byte, kind Kind) error {
	if kind != JSONL && v.key == "" && !v.array {
		items = [][]byte{v.document(items)}
	}
	p.document, p.key = true, v.key
	for _, item := range items {
		named, err := withNode(item, p.Node)
		if err != nil {
			return err
		}
		p.texts = append(p.texts, named)
	}
	return nil
}

// withNode adds the node to an element as its first field. A runtime that uses the same field name causes an error.
func withNode(item []byte, node string) (string, error) {
	if bytes.Contains(item, []byte(`"`+NodeColumn+`"`)) {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(item, &fields); err == nil && fields[NodeColumn] != nil {
			return "", errors.New("an element of its answer has a field for the node")
		}
	}
	name, err := compactJSON(node)
	if err != nil {
		return "", err
	}
	field := `{"` + NodeColumn + `":` + string(name)
	if string(item) == "{}" {
		return field + "}", nil
	}
	return field + "," + string(item[1:]), nil
}

// Merge writes the parts of several nodes as one view with a NODE column, or with the node in each element. Rows and
// elements are sorted by Options.Sort, else by node and then as for a single node.
func Merge(w io.Writer, parts []*Part, o Options) error {
	var columns []column[nodeRow]
	var rows []nodeRow
	var texts []string
	document, list := false, ""
	for _, p := range sortedBy(parts, func(p *Part) string { return p.Node }, compareText) {
		if columns == nil {
			columns = p.columns
		}
		rows, texts = append(rows, p.rows...), append(texts, p.texts...)
		if p.document {
			document, list = true, p.key
		}
	}
	if columns != nil {
		return mergeRows(w, rows, columns, o)
	}
	kind := o.Format.Kind
	switch {
	case !document:
		return writeLines(w, texts)
	case kind == JSONL:
		return writeLines(w, each(texts, func(text string) string { return string(EscapeJSON([]byte(text))) }))
	case kind == Default:
		kind = JSON
	case kind == Table || kind == Wide: // the view has no table, so it is written as YAML, as by render
		kind = YAML
	}
	root := "[" + strings.Join(texts, ",") + "]"
	if list != "" {
		root = `{"` + list + `":` + root + "}"
	}
	return renderDocument(w, []byte(root), kind, o.Format.compiled)
}

func mergeRows(w io.Writer, rows []nodeRow, columns []column[nodeRow], o Options) error {
	all := []column[nodeRow]{{name: strings.ToUpper(NodeColumn), shrink: true, value: func(r nodeRow, _ Options) string { return r.node }}}
	all = append(all, columns...)
	if name, down := sortColumn(o); name != "" && name != NodeColumn {
		o.Sort = ""
		rows = sortedBy(rows, func(r nodeRow) string { return r.sort }, inOrder(down))
	}
	return writeTable(w, rows, all, o)
}
