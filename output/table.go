package output

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
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
	named bool   // shown by name only
	value func(row T, o Options) string
	// less orders rows by what the text stands for; nil: by the text, or the number that it is.
	less func(a, b T) int
	// shrink marks a column that gives way when the terminal is narrow, down to least cells.
	shrink bool
	least  int // 0: minShrunk; never less than its header
	// start marks a column that is cut at its beginning: an image's tag is at its end.
	start bool
	// spare marks a column that is left out where the terminal is narrower still,
	// the one with the lowest number first; 0 never is. --columns and -o wide show
	// it in any case.
	spare int
	// width is the least, of columns that are written before all of their cells are known.
	width int
	// prose marks sentences, which are no use when they are cut: where a line is too
	// long for the terminal they go on lines of their own.
	prose bool
	// tone is the colour of a row's cell; nil: none.
	tone func(row T, o Options) tone
}

func (c column[T]) floor() int { return max(c.least, minShrunk, len(c.name)) }

// tone is a colour by what it means: the escape code that begins it.
type tone string

const (
	plain  tone = ""
	good   tone = "\x1b[32m"
	doubt  tone = "\x1b[33m"
	bad    tone = "\x1b[31m"
	faint  tone = "\x1b[2m"
	header tone = "\x1b[1m"
)

const endTone = "\x1b[0m"

func (t tone) paint(text string) string {
	if t == plain || text == "" {
		return text
	}
	return string(t) + text + endTone
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

// minShrunk is the least that a shrinking column is cut to, in cells, and lastShrunk what it
// is cut to where nothing else helps.
const (
	minShrunk  = 8
	lastShrunk = 4
)

// foldIndent is how far the lines are indented that a row of a folded table goes on in.
const foldIndent = 4

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
			if !c.named && (!c.wide || o.Format.Kind == Wide) {
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
		less = func(a, b T) int { return compareText(columns[i].value(a, o), columns[i].value(b, o)) }
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

// compareText orders numbers by their size, before all other texts.
func compareText(a, b string) int {
	n, errA := strconv.Atoi(a)
	m, errB := strconv.Atoi(b)
	switch {
	case errA == nil && errB != nil:
		return -1
	case errA != nil && errB == nil:
		return 1
	}
	return cmp.Or(cmp.Compare(n, m), cmp.Compare(a, b))
}

// writeTable writes rows under a header line. On a terminal it leaves spare columns out and
// cuts shrinking ones, the widest first, until a line fits; columns that were asked for are
// all shown, on several lines if need be.
func writeTable[T any](w io.Writer, rows []T, columns []column[T], o Options) error {
	rows, err := order(rows, columns, o)
	if err != nil {
		return err
	}
	shown, err := choose(columns, o)
	if err != nil {
		return err
	}
	limit, asked := o.Width, len(o.Columns) > 0 || o.Format.Kind == Wide
	if o.NoTrunc {
		limit = 0
	}
	if limit > 0 && slices.ContainsFunc(shown, func(c column[T]) bool { return c.prose }) && lineWidth(widthsOf(cellsOf(rows, shown, o), len(shown)), gap) > limit {
		return writeProse(w, rows, shown, len(o.Columns) == 0, o)
	}
	cells := cellsOf(rows, shown, o)
	if o.Crictl {
		return crictlTable(w, cells)
	}
	widths := widthsOf(cells, len(shown))
	space := gap
	if limit > 0 && lineWidth(widths, gap) > limit {
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

// painter returns what colours the cells of a table; nil where there are no colours.
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

// writeFolded writes each row on as many lines as it takes, and the header so, too.
func writeFolded[T any](w io.Writer, cells [][]string, shown []column[T], widths []int, limit int, paint func(int, int, string) string) error {
	lines := make([]bytes.Buffer, len(cells))
	for from := 0; from < len(shown); {
		indent := 0
		if from > 0 {
			indent = foldIndent
		}
		to := from + 1
		for to < len(shown) && indent+lineWidth(widths[from:to+1], narrowGap) <= limit {
			to++
		}
		if to == from+1 && shown[from].shrink {
			widths[from] = min(widths[from], limit-indent)
		}
		part := make([][]string, len(cells))
		for i, line := range cells {
			part[i] = slices.Clone(line[from:to])
		}
		cut(part, shown[from:to], widths[from:to])
		first := from
		drawn, err := draw(part, narrowGap, style{paint: func(line, i int, text string) string {
			if paint == nil {
				return text
			}
			return paint(line, first+i, text)
		}})
		if err != nil {
			return err
		}
		for i, line := range bytes.SplitAfter(drawn, []byte("\n"))[:len(cells)] {
			if len(line) > 1 {
				lines[i].WriteString(strings.Repeat(" ", indent))
				lines[i].Write(line)
			}
		}
		from = to
	}
	for i := range lines {
		if _, err := lines[i].WriteTo(w); err != nil {
			return err
		}
	}
	return nil
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

// shrunk returns widths with those that shrink at their least.
func shrunk[T any](shown []column[T], widths []int) []int {
	widths = slices.Clone(widths)
	for i, c := range shown {
		if c.shrink {
			widths[i] = min(widths[i], c.floor())
		}
	}
	return widths
}

// narrow returns the columns that a terminal has room for, shrinking ones at their least,
// and the space between them. What is left out and has room once a wider one is gone comes back.
func narrow[T any](columns []column[T], widths []int, limit int, mayDrop bool) (shown []column[T], space int) {
	widths = shrunk(columns, widths)
	var spare []int // in the order in which they go
	for i, c := range columns {
		if c.spare > 0 && mayDrop {
			spare = append(spare, i)
		}
	}
	slices.SortStableFunc(spare, func(a, b int) int { return cmp.Compare(columns[a].spare, columns[b].spare) })
	gone := map[int]bool{}
	width := func(space int) int {
		var left []int
		for i, w := range widths {
			if !gone[i] {
				left = append(left, w)
			}
		}
		return lineWidth(left, space)
	}
	for _, i := range spare {
		gone[i] = width(narrowGap) > limit
	}
	for _, i := range slices.Backward(spare) {
		if back := gone[i]; back {
			gone[i] = false
			gone[i] = width(narrowGap) > limit
		}
	}
	for i, c := range columns {
		if !gone[i] {
			shown = append(shown, c)
		}
	}
	if width(gap) <= limit {
		return shown, gap
	}
	return shown, narrowGap
}

// shrink narrows columns until a line fits: the widest first, down to what each is of use
// with, and if that is too much to less.
func shrink[T any](shown []column[T], widths []int, limit, space int) {
	excess := lineWidth(widths, space) - limit
	for _, floor := range []func(column[T]) int{column[T].floor, func(column[T]) int { return lastShrunk }} {
		for ; excess > 0; excess-- {
			widest := -1
			for i, c := range shown {
				if c.shrink && widths[i] > floor(c) && (widest < 0 || widths[i] > widths[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
		}
	}
}

// cut shortens the cells of shrinking columns.
func cut[T any](cells [][]string, shown []column[T], widths []int) {
	for _, line := range cells {
		for i, c := range shown {
			switch {
			case !c.shrink || cellWidth(line[i]) <= widths[i]:
			case c.start:
				line[i] = truncateStart(line[i], widths[i])
			default:
				line[i] = truncate(line[i], widths[i])
			}
		}
	}
}

// style is how cells are written.
type style struct {
	paint  func(line, column int, text string) string // colours a cell; nil: there are no colours
	ragged func(column int) bool                      // reports whether a column is not filled up with spaces; nil: all are
}

// draw lays out aligned lines without borders and without trailing spaces.
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

// plainRows writes rows as they are. The table library's own renderer can do that too, and
// takes as long for it as for all the rest: BenchmarkContainers.
type plainRows struct {
	tw.Renderer
	out   *bytes.Buffer
	space int
	style
	line int // the next one
}

// Row writes one line.
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

// truncateStart cuts the beginning of an image's name to a width, and before that a digest, which
// says little when it is cut.
func truncateStart(text string, width int) string {
	if name, _, ok := strings.Cut(text, "@"); ok {
		text = name + "@…"
	}
	if excess := cellWidth(text) - width; excess > 0 {
		return runewidth.TruncateLeft(text, excess+1, "…")
	}
	return text
}
