package output

import (
	"bytes"
	"cmp"
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
	// width is the least, of columns that are written before all of their cells are known.
	width int
	// prose marks sentences, which are no use when they are cut: where a line is too
	// long for the terminal they go on lines of their own.
	prose bool
}

// by orders rows by a number.
func by[T any, N cmp.Ordered](number func(T) N) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(number(a), number(b)) }
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

// Columns are the names that --columns and --sort take for a view.
type Columns []string

// The columns of each view.
var (
	ContainerColumns = keys(containerColumns)
	PodColumns       = keys(podColumns)
	ImageColumns     = keys(imageColumns)
	EndpointColumns  = keys(endpointColumns)
	FindingColumns   = keys(findingColumns)
	SettingColumns   = keys(settingColumns)
	EventColumns     = keys(eventColumns)
	StatsColumns     = keys(usageColumns(containerSubject))
	PodStatsColumns  = keys(usageColumns(podSubject))
)

func keys[T any](columns []column[T]) Columns {
	return each(columns, func(c column[T]) string { return key(c.name) })
}

// Check reports whether a view has the columns that o names, before there is
// anything to show.
func (c Columns) Check(o Options) error {
	wanted := slices.Clone(o.Columns)
	if o.Sort != "" {
		wanted = append(wanted, strings.TrimPrefix(o.Sort, "-"))
	}
	for _, name := range wanted {
		if _, err := c.index(name); err != nil {
			return err
		}
	}
	return nil
}

// index is where the column is that name means.
func (c Columns) index(name string) (int, error) {
	i := slices.Index(c, key(strings.TrimSpace(name)))
	if i < 0 {
		return 0, fmt.Errorf("unknown column %q: must be one of %s", name, c)
	}
	return i, nil
}

func (c Columns) String() string { return strings.Join(c, ", ") }

// choose returns the columns to show.
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
		i, err := keys(columns).index(name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, columns[i])
	}
	return chosen, nil
}

// order sorts rows by the column that o.Sort names, keeping the order of equals.
func order[T any](rows []T, columns []column[T], o Options) ([]T, error) {
	if o.Sort == "" {
		return rows, nil
	}
	name, down := strings.CutPrefix(o.Sort, "-")
	i, err := keys(columns).index(name)
	if err != nil {
		return nil, err
	}
	less := columns[i].less
	if less == nil {
		less = by(func(row T) string { return columns[i].value(row, o) })
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

// writeTable writes rows under a header line. On a terminal it leaves spare columns out and
// cuts shrinking ones, the widest first, until a line fits.
func writeTable[T any](w io.Writer, rows []T, columns []column[T], o Options) error {
	rows, err := order(rows, columns, o)
	if err != nil {
		return err
	}
	shown, err := choose(columns, o)
	if err != nil {
		return err
	}
	limit, mayDrop := o.Width, len(o.Columns) == 0
	if o.NoTrunc {
		limit = 0
	}
	cells := cellsOf(rows, shown, o)
	if o.Crictl {
		return crictlTable(w, cells)
	}
	widths := widthsOf(cells, len(shown))
	if limit > 0 && slices.ContainsFunc(shown, func(c column[T]) bool { return c.prose }) && lineWidth(widths, gap) > limit {
		return writeProse(w, rows, shown, mayDrop, o)
	}
	space := gap
	if limit > 0 && mayDrop && o.Format.Kind != Wide {
		if shown, space = narrow(shown, widths, limit); len(shown) < len(widths) {
			cells = cellsOf(rows, shown, o)
			widths = widthsOf(cells, len(shown))
		}
	}
	if limit > 0 {
		cut(cells, shown, widths, limit, space)
	}
	lines, err := draw(cells, space)
	if err != nil {
		return err
	}
	_, err = w.Write(lines)
	return err
}

// cellsOf are the texts of a table, its header first.
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

// widthsOf measures columns.
func widthsOf(cells [][]string, columns int) []int {
	widths := make([]int, columns)
	for _, line := range cells {
		for i, cell := range line {
			widths[i] = max(widths[i], cellWidth(cell))
		}
	}
	return widths
}

func lineWidth(widths []int, space int) int {
	total := space * (len(widths) - 1)
	for _, width := range widths {
		total += width
	}
	return total
}

// narrow returns the columns that a terminal has room for, shrinking ones as far as they
// shrink, and the space between them.
func narrow[T any](shown []column[T], widths []int, limit int) ([]column[T], int) {
	shown, widths = slices.Clone(shown), slices.Clone(widths)
	for i, c := range shown {
		if c.shrink {
			widths[i] = min(widths[i], minShrunk)
		}
	}
	for {
		for _, space := range []int{gap, narrowGap} {
			if lineWidth(widths, space) <= limit {
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
		shown, widths = slices.Delete(shown, drop, drop+1), slices.Delete(widths, drop, drop+1)
	}
}

// cut shortens the cells of shrinking columns.
func cut[T any](cells [][]string, shown []column[T], widths []int, limit, space int) {
	for excess := lineWidth(widths, space) - limit; excess > 0; excess-- {
		widest := -1
		for i, c := range shown {
			if c.shrink && widths[i] > minShrunk && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	for _, line := range cells {
		for i, c := range shown {
			if c.shrink && cellWidth(line[i]) > widths[i] {
				line[i] = truncate(line[i], widths[i])
			}
		}
	}
}

// draw lays out aligned lines without borders and without trailing spaces.
func draw(cells [][]string, space int) ([]byte, error) {
	if len(cells) == 0 {
		return nil, nil
	}
	var out bytes.Buffer
	t := tablewriter.NewTable(&out,
		tablewriter.WithRenderer(plainRows{twrender.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone, Settings: tw.Settings{Separators: tw.SeparatorsNone, Lines: tw.LinesNone},
		}), &out, space}),
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

// plainRows writes rows as they are. The table library's own renderer can do that too, and
// takes as long for it as for all the rest: BenchmarkContainers.
type plainRows struct {
	tw.Renderer
	out   *bytes.Buffer
	space int
}

// Row writes one line.
func (r plainRows) Row(cells []string, f tw.Formatting) {
	start := r.out.Len()
	for i, cell := range cells {
		r.out.WriteString(cell)
		for range f.Row.Widths.Get(i) + r.space - cellWidth(cell) {
			r.out.WriteByte(' ')
		}
	}
	r.out.Truncate(start + len(bytes.TrimRight(r.out.Bytes()[start:], " ")))
	r.out.WriteByte('\n')
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

// truncate cuts a text to a width.
func truncate(text string, width int) string { return runewidth.Truncate(text, width, "…") }
