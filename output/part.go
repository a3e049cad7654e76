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
	texts    []rankedText // elements of a document, or lines
	document bool         // texts are elements
	key      string       // key of the list in the document
}

type nodeRow struct {
	node       string
	cells      []string
	tones      []tone
	rank, sort string // sort keys across nodes
}

// rankedText is an element or line and its sort key.
type rankedText struct{ rank, text string }

// NodeColumn is the key of the column or field for the node in a view of several nodes.
const NodeColumn = "node"

func (p *Part) Empty() bool { return p.columns == nil && !p.document && p.texts == nil }

func (p *Part) Write(b []byte) (int, error) { return p.Text.Write(b) }

func addTable[T any](p *Part, rows []T, columns []column[T], rank func(T) string, o Options) error {
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
		if !slices.ContainsFunc(shown, func(c column[T]) bool { return c.name == columns[sort].name }) {
			by := columns[sort]
			by.named = true // used as sort key only
			shown = append(shown, by)
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
		if rank != nil {
			r.rank = rank(row)
		}
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
	for i, item := range items {
		named, err := withNode(item, p.Node)
		if err != nil {
			return err
		}
		p.texts = append(p.texts, rankedText{v.rank(i), named})
	}
	return nil
}

func (p *Part) addLines(v view, lines []string) {
	for i, line := range lines {
		p.texts = append(p.texts, rankedText{v.rank(i), Sanitize(line)})
	}
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

// Merge writes the parts of several nodes as one view with a NODE column, or with the node in each element. Lists are
// sorted as for a single node. Without a sort key, rows keep the order of the parts.
func Merge(w io.Writer, parts []*Part, o Options) error {
	var columns []column[nodeRow]
	var rows []nodeRow
	var texts []rankedText
	document, list := false, ""
	for _, p := range parts {
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
	lines := each(sortedBy(texts, func(r rankedText) string { return r.rank }, strings.Compare), func(r rankedText) string { return r.text })
	kind := o.Format.Kind
	switch {
	case !document:
		return writeLines(w, lines)
	case kind == JSONL:
		return writeLines(w, each(lines, func(text string) string { return string(EscapeJSON([]byte(text))) }))
	case kind == Default:
		kind = JSON
	case kind == Table || kind == Wide: // no part has rows
		kind = YAML
	}
	root := "[" + strings.Join(lines, ",") + "]"
	if list != "" {
		root = `{"` + list + `":` + root + "}"
	}
	return renderDocument(w, []byte(root), kind, o.Format.compiled)
}

func mergeRows(w io.Writer, rows []nodeRow, columns []column[nodeRow], o Options) error {
	all := []column[nodeRow]{{name: strings.ToUpper(NodeColumn), shrink: true, value: func(r nodeRow, _ Options) string { return r.node }}}
	all = append(all, columns...)
	rows = sortedBy(rows, func(r nodeRow) string { return r.rank }, strings.Compare)
	if name, down := sortColumn(o); name != "" && name != NodeColumn {
		o.Sort = ""
		rows = sortedBy(rows, func(r nodeRow) string { return r.sort }, inOrder(down))
	}
	return writeTable(w, rows, all, o)
}
