// Package screen renders a program's terminal output as text or SVG. It supports the output of shells and crishim:
// text, line ends, backspaces, SGR colours, cursor up, down and to a column, and erasing. It ignores other escape
// sequences.
package screen

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	cellWidth, cellHeight = 8.4, 18.0
	margin                = 16.0
)

// A cell is a character with SVG attributes for colour and weight.
type cell struct {
	char rune
	look string
}

// reversed is the look of inverse text.
const reversed = ` fill="#0d1117"`

// looks are the SVG attributes of SGR parameters. 0 and an empty parameter reset them.
var looks = map[string]string{
	"1": ` font-weight="bold"`, "2": ` fill="#8b949e"`, "7": reversed, "31": ` fill="#ff7b72"`, "32": ` fill="#7ee787"`, "33": ` fill="#e3b341"`, "36": ` fill="#79c0ff"`,
}

var sequence = regexp.MustCompile(`^\x1b\[([0-9;?]*)([A-Za-z])`)

// SVG renders a terminal of the given width after text was written to it. title is the text alternative.
func SVG(title, text string, width int) []byte {
	rows := draw(text, width)
	var out bytes.Buffer
	w, h := float64(width)*cellWidth+2*margin, float64(len(rows))*cellHeight+2*margin
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n<title>", w, h, w, h)
	_ = xml.EscapeText(&out, []byte(title))
	fmt.Fprintf(&out, "</title>\n<rect width=\"%.0f\" height=\"%.0f\" rx=\"8\" fill=\"#0d1117\"/>\n", w, h)
	out.WriteString(`<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="14" fill="#d5dbe3" xml:space="preserve">` + "\n")
	for y, row := range rows {
		for x := 0; x < len(row); {
			end := x + 1
			for end < len(row) && row[end].look == row[x].look {
				end++
			}
			if strings.Contains(row[x].look, reversed) {
				fmt.Fprintf(&out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", margin+float64(x)*cellWidth, margin+float64(y)*cellHeight, float64(end-x)*cellWidth, cellHeight)
			}
			for x < end {
				if row[x].char == ' ' {
					x++
					continue
				}
				to := x + 1
				for to < end && !blank(row[to:]) {
					to++
				}
				var run strings.Builder
				for _, c := range row[x:to] {
					run.WriteRune(c.char)
				}
				// The explicit length keeps columns aligned with any font.
				fmt.Fprintf(&out, `<text x="%.1f" y="%.1f" textLength="%.1f"%s>`, margin+float64(x)*cellWidth, margin+(float64(y)+0.75)*cellHeight, float64(to-x)*cellWidth, row[x].look)
				_ = xml.EscapeText(&out, []byte(run.String()))
				out.WriteString("</text>\n")
				x = to
			}
		}
	}
	out.WriteString("</g>\n</svg>\n")
	return out.Bytes()
}

// blank reports whether a row continues with two blanks, or with one at its end.
func blank(row []cell) bool {
	return row[0].char == ' ' && (len(row) == 1 || row[1].char == ' ')
}

// text returns the lines of a terminal of the given width after text was written to it.
func Text(text string, width int) string {
	var lines []string
	for _, row := range draw(text, width) {
		var line strings.Builder
		for _, c := range row {
			line.WriteRune(c.char)
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// draw returns the rows of the terminal. Long lines wrap.
func draw(text string, width int) [][]cell {
	rows, at, column, look := [][]cell{nil}, 0, 0, ""
	down := func(by int) {
		at = max(at+by, 0)
		for len(rows) <= at {
			rows = append(rows, nil)
		}
	}
	for text != "" {
		if m := sequence.FindStringSubmatch(text); m != nil {
			text = text[len(m[0]):]
			n, err := strconv.Atoi(m[1])
			if err != nil {
				n = 1
			}
			switch m[2] {
			case "m":
				look = attributes(look, m[1])
			case "A":
				down(-n)
			case "B":
				down(n)
			case "C":
				column = min(column+n, width-1)
			case "D":
				column = max(column-n, 0)
			case "G":
				column = n - 1
			case "J", "K":
				rows[at] = rows[at][:min(column, len(rows[at]))]
				if m[2] == "J" {
					rows = rows[:at+1]
				}
			}
			continue
		}
		char := []rune(text[:min(len(text), 4)])[0]
		text = text[len(string(char)):]
		switch {
		case char == '\n':
			down(1)
			column = 0
		case char == '\r':
			column = 0
		case char == '\b':
			column = max(column-1, 0)
		case char >= ' ':
			if column == width {
				down(1)
				column = 0
			}
			for len(rows[at]) <= column {
				rows[at] = append(rows[at], cell{char: ' '})
			}
			rows[at][column] = cell{char, look}
			column++
		}
	}
	return rows
}

// attributes applies an SGR sequence to a look.
func attributes(look, parameters string) string {
	without := func(parts ...string) {
		for _, p := range parts {
			look = strings.ReplaceAll(look, looks[p], "")
		}
	}
	for p := range strings.SplitSeq(parameters, ";") {
		switch p {
		case "", "0":
			look = ""
		case "22":
			without("1", "2")
		case "27":
			without("7")
		case "39":
			without("31", "32", "33", "36")
		default:
			without(p)
			look += looks[p]
		}
	}
	return look
}
