package output

import (
	"bytes"
	"io"
	"strings"
)

const (
	// proseRoom is the least width, in cells, of a text beside the other columns; with
	// less it goes below them.
	proseRoom = 30
	// proseIndent is how far it is indented there.
	proseIndent = 8
)

// writeProse writes a table that has sentences in it on a terminal that is too narrow
// for them: the first sentence beside the other columns, wrapped, if there is room, and
// the others below it with the name of their column.
func writeProse[T any](w io.Writer, rows []T, shown []column[T], o Options) error {
	short, prose := partProse(shown)
	cells := cellsOf(rows, short, o)
	widths, indent := columnWidths(cells, len(short))
	beside := o.Width-indent >= proseRoom
	if !beside {
		indent = proseIndent
	}
	var b bytes.Buffer
	line := func(cells []string, text []string) {
		start := b.Len()
		for i, cell := range cells {
			b.WriteString(cell + strings.Repeat(" ", widths[i]+gap-cellWidth(cell)))
		}
		for i, part := range text {
			if i > 0 || !beside {
				b.Truncate(start + len(bytes.TrimRight(b.Bytes()[start:], " ")))
				b.WriteString("\n" + strings.Repeat(" ", indent))
			}
			b.WriteString(part)
		}
		b.Truncate(start + len(bytes.TrimRight(b.Bytes()[start:], " ")))
		b.WriteByte('\n')
	}
	if !o.NoHeaders {
		var header []string
		if beside {
			header = []string{prose[0].name}
		}
		line(cells[0], header)
		cells = cells[1:]
	}
	for i, row := range rows {
		var text []string
		for j, c := range prose {
			value := Sanitize(c.value(row, o))
			if value != "" && j > 0 {
				value = strings.ToLower(c.name) + ": " + value
			}
			text = append(text, wrap(value, o.Width-indent)...)
		}
		line(cells[i], text)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// partProse tells columns with sentences from the others.
func partProse[T any](shown []column[T]) (short, prose []column[T]) {
	for _, c := range shown {
		if c.prose {
			prose = append(prose, c)
		} else {
			short = append(short, c)
		}
	}
	return short, prose
}

// columnWidths measures columns, and all of them with the gaps behind them.
func columnWidths(cells [][]string, columns int) (widths []int, all int) {
	widths = make([]int, columns)
	for i := range widths {
		for _, line := range cells {
			widths[i] = max(widths[i], cellWidth(line[i]))
		}
		all += widths[i] + gap
	}
	return widths, all
}

// wrap breaks a text at its spaces. A word that is too long stays whole: somebody may
// want to copy it.
func wrap(text string, width int) []string {
	var lines []string
	for _, word := range strings.Fields(text) {
		last := len(lines) - 1
		if last >= 0 && cellWidth(lines[last])+1+cellWidth(word) <= width {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}
