package output

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/pkg/twwidth"
	twrender "github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// tone is a colour with a meaning. Its value is the escape code that starts it.
type tone string

const (
	plain  tone = ""
	good   tone = "\x1b[32m"
	warn   tone = "\x1b[33m"
	bad    tone = "\x1b[31m"
	faint  tone = "\x1b[2m"
	header tone = "\x1b[1m"
)

const endTone = "\x1b[0m"

type Tone = tone

const (
	Good   = good
	Warn   = warn
	Bad    = bad
	Faint  = faint
	Header = header
)

func (o Options) Paint(t Tone, text string) string {
	if !o.Color {
		return text
	}
	return t.paint(text)
}

func (t tone) paint(text string) string {
	if t == plain || text == "" {
		return text
	}
	return string(t) + text + endTone
}

// writeTable writes rows below a header line. If a row is wider than the terminal, writeTable drops columns with spare
// set and then cuts columns with shrink set, the widest first. With --columns or -o wide it drops no column, and a row
// may take several lines instead.
func writeTable[T any](w io.Writer, rows []T, columns []column[T], o Options) error {
	if p, ok := w.(*Part); ok {
		return addTable(p, rows, columns, o)
	}
	rows, err := order(rows, columns, o)
	if err != nil {
		return err
	}
	shown, err := choose(columns, o)
	if err != nil {
		return err
	}
	cells := cellsOf(rows, shown, o)
	widths, space := widthsOf(cells, len(shown)), gap
	limit := o.Width
	if o.NoTrunc {
		limit = 0
	}
	tooWide := limit > 0 && lineWidth(widths, gap) > limit
	switch {
	case tooWide && slices.ContainsFunc(shown, func(c column[T]) bool { return c.prose }):
		return writeProse(w, rows, shown, len(o.Columns) == 0, o)
	case o.Crictl:
		return crictlTable(w, cells)
	case tooWide:
		asked := len(o.Columns) > 0 || o.Format.Kind == Wide
		var kept []column[T]
		if kept, space = narrow(shown, widths, limit, !asked); asked && lineWidth(shrunk(shown, widths), space) > limit {
			return writeFolded(w, cells, shown, widths, limit, painter(rows, shown, o))
		}
		if len(kept) < len(shown) {
			shown = kept
			cells = cellsOf(rows, shown, o)
			widths = widthsOf(cells, len(shown))
		}
		if lineWidth(widths, space) > limit {
			space = narrowGap
		}
		shrink(shown, widths, limit, space)
		cut(cells, shown, widths)
	}
	lines, err := draw(cells, space, style{painter(rows, shown, o), func(i int) bool { return o.Width == 0 && shown[i].prose }})
	if err != nil {
		return err
	}
	_, err = w.Write(lines)
	return err
}

// painter returns a function that colours cells, or nil without colours.
func painter[T any](rows []T, shown []column[T], o Options) func(line, column int, text string) string {
	if !o.Color {
		return nil
	}
	return func(line, i int, text string) string {
		switch {
		case !o.NoHeaders && line == 0:
			return header.paint(text)
		case !o.NoHeaders:
			line--
		}
		if shown[i].tone == nil {
			return text
		}
		return shown[i].tone(rows[line], o).paint(text)
	}
}

// cellsOf returns the texts of a table, header first.
func cellsOf[T any](rows []T, shown []column[T], o Options) [][]string {
	cells := make([][]string, 0, len(rows)+1)
	if !o.NoHeaders {
		cells = append(cells, each(shown, func(c column[T]) string { return c.name }))
	}
	for _, r := range rows {
		cells = append(cells, each(shown, func(c column[T]) string { return Sanitize(c.value(r, o)) }))
	}
	return cells
}

type style struct {
	paint  func(line, column int, text string) string // colours a cell; may be nil
	ragged func(column int) bool                      // reports whether a column is not padded; nil: all are padded
}

// draw lays out aligned lines without borders and trailing spaces.
func draw(cells [][]string, space int, look style) ([]byte, error) {
	if len(cells) == 0 {
		return nil, nil
	}
	var out bytes.Buffer
	t := tablewriter.NewTable(&out,
		tablewriter.WithRenderer(&plainRows{
			Renderer: twrender.NewBlueprint(tw.Rendition{
				Borders: tw.BorderNone, Settings: tw.Settings{Separators: tw.SeparatorsNone, Lines: tw.LinesNone},
			}),
			out: &out, space: space, style: look,
		}),
		tablewriter.WithConfig(tablewriter.Config{Row: tw.CellConfig{
			Formatting: tw.CellFormatting{AutoWrap: tw.WrapNone, AutoFormat: tw.Off},
			Padding:    tw.CellPadding{Global: tw.Padding{Overwrite: true}},
		}}),
		tablewriter.WithTrimSpace(tw.Off),
	)
	if err := t.Bulk(cells); err != nil {
		return nil, fmt.Errorf("lay out the table: %w", err)
	}
	if err := t.Render(); err != nil {
		return nil, fmt.Errorf("lay out the table: %w", err)
	}
	return out.Bytes(), nil
}

// plainRows writes rows without further formatting. The library's own renderer takes half of the total time, see
// BenchmarkContainers.
type plainRows struct {
	tw.Renderer
	out   *bytes.Buffer
	space int
	style
	line int // index of the next row, for paint; a header counts as a row
}

func (r *plainRows) Row(cells []string, f tw.Formatting) {
	start := r.out.Len()
	for i, cell := range cells {
		text := cell
		if r.paint != nil {
			text = r.paint(r.line, i, cell)
		}
		r.out.WriteString(text)
		width := f.Row.Widths.Get(i)
		if r.ragged != nil && r.ragged(i) {
			width = cellWidth(cell)
		}
		for range width + r.space - cellWidth(cell) {
			r.out.WriteByte(' ')
		}
	}
	r.out.Truncate(start + len(bytes.TrimRight(r.out.Bytes()[start:], " ")))
	r.out.WriteByte('\n')
	r.line++
}

// cellWidth returns the width of a text in terminal cells. Printable ASCII is handled without the library's tables.
func cellWidth(text string) int {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' {
			return twwidth.Width(text)
		}
	}
	return len(text)
}
