package output

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Part is a view of one node, in a form that Merge makes one view of with those of other
// nodes. It has one of a table, items and lines, by the format that was asked for.
type Part struct {
	Columns []partColumn `json:"columns,omitempty"` // of a table
	Rows    []partRow    `json:"rows,omitempty"`

	Items []json.RawMessage `json:"items,omitempty"` // of a document
	Key   string            `json:"key,omitempty"`   // of the list that they are there

	Lines []string `json:"lines,omitempty"`
	Ranks []string `json:"ranks,omitempty"` // of items or lines, where they have an order of their own
}

// partColumn is a column without the functions that fill it.
type partColumn struct {
	Name   string `json:"name"`
	Named  bool   `json:"named,omitempty"` // only there to sort by
	Shrink bool   `json:"shrink,omitempty"`
	Least  int    `json:"least,omitempty"`
	Start  bool   `json:"start,omitempty"`
	Spare  int    `json:"spare,omitempty"`
	Prose  bool   `json:"prose,omitempty"`
}

// partRow has a cell for each column.
type partRow struct {
	Cells []string `json:"cells"`
	Tones []string `json:"tones,omitempty"`
	Rank  string   `json:"rank,omitempty"`
	Sort  string   `json:"sort,omitempty"` // by the column that --sort names
}

// NewPart returns the part of a table with columns of these names.
func NewPart(columns []string, rows [][]string) Part {
	return Part{
		Columns: each(columns, func(name string) partColumn { return partColumn{Name: name} }),
		Rows:    each(rows, func(cells []string) partRow { return partRow{Cells: cells} }),
	}
}

// partMark begins a part, and nothing else that a view writes.
const partMark = '\x1e'

func writePart(w io.Writer, p Part) error {
	text, err := compactJSON(p)
	if err == nil {
		_, err = w.Write(slices.Concat([]byte{partMark}, text, []byte("\n")))
	}
	return err
}

// ReadPart reads what a view with Options.Part has written; ok is false where that is no part,
// but text.
func ReadPart(text []byte) (p Part, ok bool, err error) {
	rest, ok := bytes.CutPrefix(text, []byte{partMark})
	if !ok {
		return p, false, nil
	}
	if err = json.Unmarshal(rest, &p); err == nil {
		err = p.check()
	}
	if err != nil {
		return p, true, fmt.Errorf("read the result: %w", err)
	}
	return p, true, nil
}

// maxColumns is more than any view has.
const maxColumns = 100

// check refuses what no view writes, but a node that was taken over may: what would pass for another node's, or makes the
// table of all nodes too large.
func (p Part) check() error {
	if len(p.Columns) > maxColumns {
		return fmt.Errorf("a table has %d columns", len(p.Columns))
	}
	for _, c := range p.Columns {
		if key(c.Name) == NodeColumn {
			return errors.New("a table has a column for the node")
		}
	}
	for _, r := range p.Rows {
		if len(r.Cells) != len(p.Columns) {
			return errors.New("a row has not a cell for each column")
		}
	}
	for _, item := range p.Items {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(item, &fields); err == nil && fields[NodeColumn] != nil {
			return errors.New("an element has a field for the node")
		}
	}
	return nil
}

// Form returns what a part is: a table, lines, or elements of a list. Merge takes parts of one form, and those that are "",
// which have nothing.
func (p Part) Form() string {
	switch {
	case p.Columns != nil:
		return "table"
	case p.Lines != nil:
		return "lines"
	case p.Items != nil || p.Key != "":
		return "list " + p.Key
	}
	return ""
}

// writeItems writes the part of a view for machines.
func writeItems(w io.Writer, v view, items [][]byte, kind Kind) error {
	if kind != JSONL && v.key == "" && !v.array {
		items = [][]byte{v.document(items)}
	}
	return writePart(w, Part{Items: each(items, func(i []byte) json.RawMessage { return i }), Key: v.key, Ranks: v.ranks})
}

// tones are the names that colours have in a part.
var tones = map[tone]string{good: "good", warn: "warn", bad: "bad", faint: "faint"}

// writeTablePart writes the part of a table: the columns to show, and the one to sort by.
func writeTablePart[T any](w io.Writer, rows []T, columns []column[T], rank func(T) string, o Options) error {
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
			by.named = true
			shown = append(shown, by)
		}
	}
	p := Part{Columns: each(shown, func(c column[T]) partColumn {
		return partColumn{c.name, c.named, c.shrink, c.least, c.start, c.spare, c.prose}
	})}
	for _, row := range rows {
		r := partRow{Cells: each(shown, func(c column[T]) string { return c.value(row, o) })}
		r.Tones = each(shown, func(c column[T]) string {
			if c.tone == nil {
				return ""
			}
			return tones[c.tone(row, o)]
		})
		if rank != nil {
			r.Rank = rank(row)
		}
		if sort >= 0 {
			r.Sort = columns[sort].sortKey(row, o)
		}
		p.Rows = append(p.Rows, r)
	}
	return writePart(w, p)
}

// NodePart is the part of a node.
type NodePart struct {
	Node string
	Part
}

// NodeColumn is the key of the column that a table of several nodes has more.
const NodeColumn = "node"

// nodeRow is a row of a table of several nodes, with cells in the order of its columns.
type nodeRow struct {
	node       string
	cells      []string
	tones      []tone
	rank, sort string
}

// rankedText is an element or a line, with what it is sorted by.
type rankedText struct{ rank, text string }

// Merge writes the parts of several nodes, all of one form, as one: with the column NODE, or
// with the node in each element. Lists are sorted as they would be on one node; what has no
// order of its own is in that of the parts.
func Merge(w io.Writer, parts []NodePart, o Options) error {
	if slices.ContainsFunc(parts, func(p NodePart) bool { return p.Columns != nil }) {
		return mergeTables(w, parts, o)
	}
	key, isDocument := "", false
	var all []rankedText
	for _, p := range parts {
		key, isDocument = cmp.Or(key, p.Key), isDocument || p.Key != "" || p.Items != nil
		for i, item := range p.Items {
			named, err := withNode(item, p.Node)
			if err != nil {
				return err
			}
			all = append(all, rankedText{rankAt(p.Ranks, i), named})
		}
		for i, line := range p.Lines {
			all = append(all, rankedText{rankAt(p.Ranks, i), Sanitize(line)})
		}
	}
	texts := each(sortedBy(all, func(r rankedText) string { return r.rank }, strings.Compare), func(r rankedText) string { return r.text })
	kind := o.Format.Kind
	switch kind {
	case JSONL:
		return writeLines(w, each(texts, func(text string) string { return string(EscapeJSON([]byte(text))) }))
	case Default:
		kind = JSON
	case Table, Wide: // of what has none
		kind = YAML
	}
	if !isDocument {
		return writeLines(w, texts)
	}
	document := "[" + strings.Join(texts, ",") + "]"
	if key != "" {
		document = `{"` + key + `":` + document + "}"
	}
	return renderDocument(w, []byte(document), kind, o.Format.compiled)
}

func rankAt(ranks []string, i int) string {
	if i < len(ranks) {
		return ranks[i]
	}
	return ""
}

// withNode adds the node to an element, as its first field.
func withNode(item []byte, node string) (string, error) {
	name, err := compactJSON(node)
	if err != nil {
		return "", err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, item); err != nil {
		return "", fmt.Errorf("read the result: %w", err)
	}
	switch text := compact.String(); {
	case text == "{}":
		return `{"node":` + string(name) + "}", nil
	case text[0] == '{':
		return `{"node":` + string(name) + "," + text[1:], nil
	default:
		return `{"node":` + string(name) + `,"value":` + text + "}", nil
	}
}

// mergeTables writes tables as one. A node whose crishim is of another version may have other
// columns: what it does not have is not known.
func mergeTables(w io.Writer, parts []NodePart, o Options) error {
	columns := []column[nodeRow]{{name: strings.ToUpper(NodeColumn), shrink: true, value: func(r nodeRow, _ Options) string { return r.node }}}
	var rows []nodeRow
	at := map[string]int{} // of a column, in the cells of all rows
	for _, p := range parts {
		for _, c := range p.Columns {
			if _, ok := at[c.Name]; ok {
				continue
			}
			i := len(at)
			at[c.Name] = i
			columns = append(columns, column[nodeRow]{
				name: Sanitize(c.Name), named: c.Named, shrink: c.Shrink, least: c.Least, start: c.Start, spare: c.Spare, prose: c.Prose,
				value: func(r nodeRow, _ Options) string {
					if i < len(r.cells) {
						return r.cells[i]
					}
					return unknownCell
				},
				tone: func(r nodeRow, _ Options) tone {
					if i < len(r.tones) {
						return r.tones[i]
					}
					return plain
				},
			})
		}
		for _, r := range p.Rows {
			row := nodeRow{node: p.Node, cells: make([]string, len(at)), tones: make([]tone, len(at)), rank: r.Rank, sort: r.Sort}
			for i := range row.cells {
				row.cells[i] = unknownCell
			}
			for i, c := range p.Columns {
				row.cells[at[c.Name]] = r.Cells[i]
				if i < len(r.Tones) {
					row.tones[at[c.Name]] = toneNamed(r.Tones[i])
				}
			}
			rows = append(rows, row)
		}
	}
	rows = sortedBy(rows, func(r nodeRow) string { return r.rank }, strings.Compare)
	if name, down := sortColumn(o); name != "" && name != NodeColumn {
		o.Sort = ""
		rows = sortedBy(rows, func(r nodeRow) string { return r.sort }, inOrder(down))
	}
	return writeTable(w, rows, columns, o)
}

func toneNamed(name string) tone {
	for t, n := range tones {
		if n == name {
			return t
		}
	}
	return plain
}
