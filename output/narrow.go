package output

import (
	"bytes"
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
)

// Space between two columns, in terminal cells: normally and on a narrow terminal.
const (
	gap       = 3
	narrowGap = 2
)

const (
	minShrunk  = 8 // minimum width of a shrinking column in cells; lastShrunk applies if the row does not fit
	lastShrunk = 4 // minimum width if the row still does not fit
	foldIndent = 4 // indent of the continuation lines of a folded row
)

func (c column[T]) floor() int { return max(c.least, minShrunk, len(c.name)) }

func lineWidth(widths []int, space int) int {
	total := space * (len(widths) - 1)
	for _, width := range widths {
		total += width
	}
	return total
}

func widthsOf(cells [][]string, columns int) []int {
	widths := make([]int, columns)
	for _, line := range cells {
		for i, cell := range line {
			widths[i] = max(widths[i], cellWidth(cell))
		}
	}
	return widths
}

// narrow returns the columns that fit the terminal, with shrinking columns at their minimum, and the space between
// them. Columns are dropped in order of spare until the row fits. Columns that fit again are then restored, except
// those with spare 1.
func narrow[T any](columns []column[T], widths []int, limit int, mayDrop bool) (shown []column[T], space int) {
	widths = shrunk(columns, widths)
	var spare []int // in drop order
	for i, c := range columns {
		if c.spare > 0 && mayDrop {
			spare = append(spare, i)
		}
	}
	slices.SortFunc(spare, func(a, b int) int { return cmp.Or(cmp.Compare(columns[a].spare, columns[b].spare), cmp.Compare(b, a)) })
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
		if gone[i] && columns[i].spare > 1 {
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

// shrunk returns the widths with shrinking columns at their minimum.
func shrunk[T any](shown []column[T], widths []int) []int {
	widths = slices.Clone(widths)
	for i, c := range shown {
		if c.shrink {
			widths[i] = min(widths[i], c.floor())
		}
	}
	return widths
}

// shrink narrows the widest columns first, each down to its minimum width (floor), until a line fits. If a line still does
// not fit, the minimum becomes lastShrunk.
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

// truncate cuts a text to a width. It first drops " ago" and the time of the next start.
func truncate(text string, width int) string {
	if cellWidth(text) > width {
		text = strings.TrimSuffix(text, " ago")
		text, _, _ = strings.Cut(text, waitsUntil)
	}
	return runewidth.Truncate(text, width, "…")
}

// truncateStart cuts an image's name to a width from the left. It drops the digest first.
func truncateStart(text string, width int) string {
	if name, _, ok := strings.Cut(text, "@"); ok {
		text = name + "@…"
	}
	if excess := cellWidth(text) - width; excess > 0 {
		return runewidth.TruncateLeft(text, excess+1, "…")
	}
	return text
}

// writeFolded writes the header and each row on several lines.
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
		look := style{}
		if paint != nil {
			look.paint = func(line, i int, text string) string { return paint(line, from+i, text) }
		}
		drawn, err := draw(part, narrowGap, look)
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
