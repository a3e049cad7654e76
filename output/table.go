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
	// spare marks a column that is left out where the terminal is narrower still,
	// the one with the lowest number first; 0 never is. --columns and -o wide show
	// it in any case.
	spare int
	// prose marks sentences, which are no use when they are cut: where a line is too
	// long for the terminal they go on lines of their own.
	prose bool
}

// The space between columns, in cells, and what it is on a narrow terminal.
const (
	gap       = 3
	narrowGap = 2
)

// minShrunk is the least that a shrinking column is cut to, in cells.
const minShrunk = 8

// key is the form of a column's name that people type: "POD ID" is "pod-id".
// "CPU %" is "cpu", and "NET I/O" is "net".
func key(name string) string {
	name = strings.ReplaceAll(strings.ToLower(name), " ", "-")
	switch name {
	case "cpu-%":
		return "cpu"
	case "mem-%":
		return "mem%"
	}
	return strings.TrimSuffix(name, "-i/o")
}

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
	limit := o.Width
	if o.NoTrunc {
		limit = 0
	}
	cells := cellsOf(rows, shown, o)
	if limit > 0 && slices.ContainsFunc(shown, func(c column[T]) bool { return c.prose }) && tableWidth(cells, nil, gap) > limit {
		return writeProse(w, rows, withoutSpare(shown, len(o.Columns) > 0), o)
	}
	space := gap
	if limit > 0 && len(o.Columns) == 0 && o.Format.Kind != Wide {
		if kept, between := narrowed(shown, cells, limit); len(kept) < len(shown) || between < gap {
			shown, space = kept, between
			cells = cellsOf(rows, shown, o)
		}
	}
	fit(cells, shrinking(shown), limit, space)
	return draw(w, cells, space)
}

func shrinking[T any](columns []column[T]) []bool {
	shrinks := make([]bool, len(columns))
	for i, c := range columns {
		shrinks[i] = c.shrink
	}
	return shrinks
}

// cellsOf are the texts of a table, its header first.
func cellsOf[T any](rows []T, shown []column[T], o Options) [][]string {
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
	return cells
}

// tableWidth is what a line takes, shrinking columns counted as far as they cannot
// shrink any more.
func tableWidth(cells [][]string, shrinks []bool, gap int) int {
	if len(cells) == 0 {
		return 0
	}
	total := gap * (len(cells[0]) - 1)
	for i := range cells[0] {
		widest := 0
		for _, line := range cells {
			widest = max(widest, cellWidth(line[i]))
		}
		if shrinks != nil && shrinks[i] {
			widest = min(widest, minShrunk)
		}
		total += widest
	}
	return total
}

// narrowed are the columns that a terminal has room for, and the space between them.
func narrowed[T any](shown []column[T], cells [][]string, width int) ([]column[T], int) {
	for {
		for _, space := range []int{gap, narrowGap} {
			if tableWidth(cells, shrinking(shown), space) <= width {
				return shown, space
			}
		}
		drop := -1
		for i, c := range shown {
			if c.spare > 0 && (drop < 0 || c.spare < shown[drop].spare) {
				drop = i
			}
		}
		if drop < 0 {
			return shown, narrowGap
		}
		shown = slices.Delete(slices.Clone(shown), drop, drop+1)
		left := make([][]string, len(cells))
		for i, line := range cells {
			left[i] = slices.Delete(slices.Clone(line), drop, drop+1)
		}
		cells = left
	}
}

// withoutSpare leaves out what can be, unless the user chose the columns.
func withoutSpare[T any](shown []column[T], chosen bool) []column[T] {
	if chosen {
		return shown
	}
	return slices.DeleteFunc(slices.Clone(shown), func(c column[T]) bool { return c.spare > 0 })
}

// fit cuts the cells of shrinking columns, the widest first, until a line is
// at most width cells long. Width 0 is no limit.
func fit(cells [][]string, shrinks []bool, width, gap int) {
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
func draw(w io.Writer, cells [][]string, gap int) error {
	if len(cells) == 0 {
		return nil
	}
	if len(cells) > manyLines {
		return drawMany(w, cells, gap)
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
func drawMany(w io.Writer, cells [][]string, gap int) error {
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
