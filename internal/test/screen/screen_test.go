package screen

import (
	"strings"
	"testing"
)

func TestDraw(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"lines":             {"one\r\ntwo\n", "one|two|"},
		"a line that wraps": {"abcdefgh", "abcde|fgh"},
		"written over":      {"abc\rx\b\byz", "yzc"},
		"escape sequences":  {"a\x1b[6n\x1b[Jb\x07", "ab"},
		"wide alphabet":     {"äö€", "äö€"},
	} {
		var rows []string
		for _, row := range draw(c.text, 5) {
			var line strings.Builder
			for _, cell := range row {
				line.WriteRune(cell.char)
			}
			rows = append(rows, line.String())
		}
		if got := strings.Join(rows, "|"); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// A look ends by what ends it, not by another.
func TestAttributes(t *testing.T) {
	t.Parallel()
	look := ""
	for _, c := range []struct{ parameters, want string }{
		{"1;31", looks["1"] + looks["31"]}, {"39", looks["1"]}, {"7", looks["1"] + reversed}, {"22", reversed}, {"1;1", reversed + looks["1"]}, {"27", looks["1"]}, {"", ""},
	} {
		if look = attributes(look, c.parameters); look != c.want {
			t.Errorf("%q: got %q, want %q", c.parameters, look, c.want)
		}
	}
}

func TestSVG(t *testing.T) {
	t.Parallel()
	svg := string(SVG("a & b", "\x1b[1;31mred\x1b[0m <plain>  column", 80))
	for _, want := range []string{"<title>a &amp; b</title>", `x="16.0" y="29.5" textLength="25.2" font-weight="bold" fill="#ff7b72">red</text>`, "&lt;plain&gt;</text>", `x="125.2" y="29.5" textLength="50.4">column<`} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
}
