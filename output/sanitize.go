package output

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxCell bounds what one name, label or message may take of a table or an
// error, in bytes; containers choose these texts.
const maxCell = 4096

// Sanitize makes text that a container controls safe for a terminal: control
// characters, escape codes, bidirectional marks and broken UTF-8 are shown as
// escapes, and what is longer than 4096 bytes is cut.
func Sanitize(s string) string {
	ellipsis := ""
	if len(s) > maxCell {
		s, ellipsis = s[:maxCell], "…"
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
	}
	if clean(s) {
		return s + ellipsis
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case harmful(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String() + ellipsis
}

// clean reports whether nothing in s needs an escape; the common case.
func clean(s string) bool {
	for _, r := range s {
		if r < 0x20 || r == 0x7f || r == utf8.RuneError || harmful(r) {
			return false
		}
	}
	return true
}

// harmful reports the runes above ASCII that move, hide or reorder text: C1
// controls, bidirectional and zero-width marks, line separators.
func harmful(r rune) bool {
	if r < 0x80 {
		return false
	}
	return unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Co, r)
}
