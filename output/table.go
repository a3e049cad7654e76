package output

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/pkg/twwidth"
	twrender "github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// column is one column of a table over rows of type T.
type column[T any] struct {
	name  string // upper case, as in the header
	wide  bool   // shown with -o wide (or by name) only
	value func(row T, o Options) string
	// less orders rows by what the text stands for; nil: by the text.
	less func(a, b T) int
	// shrink marks a column that gives way when the terminal is narrow.
	shrink bool
}

// gap is the space between columns, in cells.
const gap = 3

// minShrunk is the least that a shrinking column is cut to, in cells.
const minShrunk = 8

// key is the form of a column's name that people type: "POD ID" is "pod-id".
func key(name string) string { return strings.ReplaceAll(strings.ToLower(name), " ", "-") }

// find gives the column that name means.
func find[T any](columns []column[T], name string) (column[T], error) {
	for _, c := range columns {
		if key(c.name) == key(strings.TrimSpace(name)) {
			return c, nil
		}
	}
	return column[T]{}, unknownColumn(name, keys(columns))
}

// choose gives the columns to show.
func choose[T any](columns []column[T], o Options) ([]column[T], error) {
	var chosen []column[T]
	if len(o.Columns) == 0 {
		for _, c := range columns {
			if !c.wide || o.Format.Kind == Wide {
				chosen = append(chosen, c)
			}
		}
		return chosen, nil
	}
	for _, name := range o.Columns {
		c, err := find(columns, name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, c)
	}
	return chosen, nil
}

// order sorts rows by the column that o.Sort names, keeping the order of equals.
func order[T any](rows []T, columns []column[T], o Options) ([]T, error) {
	if o.Sort == "" {
		return rows, nil
	}
	name, down := strings.CutPrefix(o.Sort, "-")
	c, err := find(columns, name)
	if err != nil {
		return nil, err
	}
	less := c.less
	if less == nil {
		less = func(a, b T) int { return strings.Compare(c.value(a, o), c.value(b, o)) }
	}
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b T) int {
		if down {
			return less(b, a)
		}
		return less(a, b)
	})
	return sorted, nil
}

// writeTable writes rows under a header line.
func writeTable[T any](w io.Writer, rows []T, columns []column[T], o Options) error {
	rows, err := order(rows, columns, o)
	if err != nil {
		return err
	}
	shown, err := choose(columns, o)
	if err != nil {
		return err
	}
	cells := make([][]string, 0, len(rows)+1)
	if !o.NoHeaders {
		header := make([]string, len(shown))
		for i, c := range shown {
			header[i] = c.name
		}
		cells = append(cells, header)
	}
	for _, r := range rows {
		line := make([]string, len(shown))
		for i, c := range shown {
			line[i] = Sanitize(c.value(r, o))
		}
		cells = append(cells, line)
	}
	shrinks := make([]bool, len(shown))
	for i, c := range shown {
		shrinks[i] = c.shrink
	}
	if !o.NoTrunc {
		fit(cells, shrinks, o.Width)
	}
	return draw(w, cells)
}

// fit cuts the cells of shrinking columns, the widest first, until a line is
// at most width cells long. Width 0 is no limit.
func fit(cells [][]string, shrinks []bool, width int) {
	if width <= 0 || len(cells) == 0 {
		return
	}
	widths := make([]int, len(shrinks))
	total := gap * (len(shrinks) - 1)
	for i := range shrinks {
		for _, line := range cells {
			widths[i] = max(widths[i], runewidth.StringWidth(line[i]))
		}
		total += widths[i]
	}
	limits := slices.Clone(widths)
	for total > width {
		widest := -1
		for i, s := range shrinks {
			if s && limits[i] > minShrunk && (widest < 0 || limits[i] > limits[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		limits[widest]--
		total--
	}
	for i := range shrinks {
		if limits[i] == widths[i] {
			continue
		}
		for _, line := range cells {
			line[i] = runewidth.Truncate(line[i], limits[i], "…")
		}
	}
}

// draw writes aligned lines without borders and without trailing spaces.
func draw(w io.Writer, cells [][]string) error {
	if len(cells) == 0 {
		return nil
	}
	if len(cells) > manyLines {
		return drawMany(w, cells)
	}
	var b bytes.Buffer
	t := tablewriter.NewTable(&b,
		tablewriter.WithRenderer(twrender.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone,
			Symbols: tw.NewSymbols(tw.StyleNone),
			Settings: tw.Settings{
				Separators: tw.SeparatorsNone,
				Lines:      tw.LinesNone,
			},
		})),
		tablewriter.WithConfig(tablewriter.Config{Row: tw.CellConfig{
			Formatting: tw.CellFormatting{AutoWrap: tw.WrapNone, AutoFormat: tw.Off},
			Alignment:  tw.CellAlignment{Global: tw.AlignLeft},
			Padding:    tw.CellPadding{Global: tw.Padding{Right: strings.Repeat(" ", gap), Overwrite: true}},
		}}),
		tablewriter.WithTrimSpace(tw.Off),
	)
	if err := t.Bulk(cells); err != nil {
		return fmt.Errorf("lay out the table: %w", err)
	}
	if err := t.Render(); err != nil {
		return fmt.Errorf("lay out the table: %w", err)
	}
	out := make([]byte, 0, b.Len())
	for line := range bytes.Lines(b.Bytes()) {
		out = append(append(out, bytes.TrimRight(line, " \n")...), '\n')
	}
	_, err := w.Write(out)
	return err
}

// manyLines is where drawMany takes over from the table library, which spends
// some 50 us on a line whatever is in it: most of the time of a long list.
const manyLines = 64

// drawMany writes what draw would. A test compares the two.
func drawMany(w io.Writer, cells [][]string) error {
	widths := make([]int, len(cells[0]))
	for _, line := range cells {
		for i, cell := range line {
			widths[i] = max(widths[i], cellWidth(cell))
		}
	}
	var b bytes.Buffer
	for _, line := range cells {
		start := b.Len()
		for i, cell := range line {
			b.WriteString(cell)
			for range widths[i] + gap - cellWidth(cell) {
				b.WriteByte(' ')
			}
		}
		b.Truncate(start + len(bytes.TrimRight(b.Bytes()[start:], " ")))
		b.WriteByte('\n')
	}
	_, err := w.Write(b.Bytes())
	return err
}

// cellWidth is how many cells of a terminal the text takes. Only what is not
// plain ASCII is worth the library's tables.
func cellWidth(text string) int {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' {
			return twwidth.Width(text)
		}
	}
	return len(text)
}
