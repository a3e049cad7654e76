package output

import (
	"bytes"
	"io"
	"strings"
)

const (
	proseRoom   = 30 // minimum width of prose to the right of the other columns, in cells; narrower prose goes below the row
	proseIndent = 8  // indent of prose under the row
)

// writeProse writes a table with sentences on a narrow terminal. The first prose column is wrapped to the right of the others if
// there is room. Further prose columns follow below the row with the names of their columns.
func writeProse[T any](w io.Writer, rows []T, shown []column[T], mayDrop bool, o Options) error {
	var short, prose []column[T]
	for _, c := range shown {
		switch {
		case c.prose:
			prose = append(prose, c)
		case c.spare == 0 || !mayDrop:
			short = append(short, c)
		}
	}
	cells := cellsOf(rows, short, o)
	widths, space := widthsOf(cells, len(short)), gap
	if lineWidth(widths, gap) > o.Width {
		space = narrowGap
		shrink(short, widths, o.Width, space)
		cut(cells, short, widths)
	}
	indent := lineWidth(widths, space) + space
	onSameLine := o.Width-indent >= proseRoom
	if !onSameLine {
		indent = proseIndent
	}
	drawn, err := draw(cells, space, style{paint: painter(rows, short, o)})
	if err != nil {
		return err
	}
	lines := strings.Split(string(drawn), "\n")
	var b bytes.Buffer
	line := func(text []string) {
		b.WriteString(lines[0])
		for i, part := range text {
			start := cellWidth(lines[0])
			if i > 0 || !onSameLine {
				b.WriteByte('\n')
				start = 0
			}
			if part != "" {
				b.WriteString(strings.Repeat(" ", indent-start) + part)
			}
		}
		b.WriteByte('\n')
		lines = lines[1:]
	}
	if !o.NoHeaders {
		var names []string
		if onSameLine {
			text := prose[0].name
			if o.Color {
				text = header.paint(text)
			}
			names = []string{text}
		}
		line(names)
	}
	for _, row := range rows {
		line(sentences(row, prose, o.Width-indent, o))
	}
	_, err = w.Write(b.Bytes())
	return err
}

// sentences wraps the texts of a row's prose columns to lines of the given width. Each text except the first begins with
// the name of its column.
func sentences[T any](row T, prose []column[T], width int, o Options) (text []string) {
	for i, c := range prose {
		value := Sanitize(c.value(row, o))
		if value != "" && i > 0 {
			value = strings.ToLower(c.name) + ": " + value
		}
		text = append(text, Wrap(value, width)...)
	}
	return text
}

// Wrap breaks a text at spaces into lines of at most width cells. Longer words stay whole, so that they can be copied.
func Wrap(text string, width int) []string {
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
