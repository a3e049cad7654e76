package cli

import (
	"context"
	"io"
	"strings"
)

// completeBashVerb is the hidden verb that bash's script calls with the line up to the cursor and COMP_WORDBREAKS.
// bash inserts the answer into the line unchanged. Container names are chosen by others, so the answer is quoted, and
// has only the part that bash replaces.
const completeBashVerb = "__complete-bash"

func completeBash(ctx context.Context, app *App, args []string) {
	if len(args) != 2 {
		return
	}
	line, ok := readBashLine(args[0], args[1])
	if !ok {
		return
	}
	for _, one := range completions(ctx, app, line.words) {
		text := one.value
		if text != completeFiles {
			if text, ok = bashQuote(strings.TrimPrefix(text, line.kept), line.quote); !ok {
				continue
			}
		}
		_, _ = io.WriteString(app.in.Out, text+"\n")
	}
}

// bashQuote quotes text for a bash command line. If quote is not 0, the text is inserted after this opening quote. The
// second result is false for text that cannot be quoted in this way.
func bashQuote(text string, quote byte) (string, bool) {
	if quote != 0 && strings.HasSuffix(text, string(quote)) {
		return "", false // readline does not close the quote after a completion that ends with the same quote
	}
	switch quote {
	case '\'':
		return strings.ReplaceAll(text, "'", `'\''`), true
	case '"':
		// bash expands the history between double quotes even after a backslash.
		return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(text), !strings.Contains(text, "!")
	}
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("_./:=@%+,-", c) >= 0
		if c < 0x80 && !plain {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	return b.String(), true
}

// bashLine is a command line, split as bash and readline do. Its last word is the word to complete.
type bashLine struct {
	words []string // after the program's name, without their quotes
	kept  string   // the beginning of the last word, which readline does not replace
	quote byte     // the quote that is open, or 0
}

// readBashLine splits a line into words without expanding anything. It reports false if the last word contains an
// expansion, because the value of a variable or a command is not known.
func readBashLine(text, breaks string) (bashLine, bool) {
	r := bashReader{breaks: breaks}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case r.quote == 0 && strings.IndexByte(" \t\n", c) >= 0:
			r.end()
		case r.quote != '\'' && c == '\\':
			r.started = true
			if i++; i < len(text) {
				r.escaped(text[i])
			}
		default:
			r.add(c)
		}
	}
	last := r.word.String()
	r.kept = last[:r.broken]
	if r.quote != 0 {
		r.kept = last[:r.quoted]
	}
	ok := !r.active
	r.started = true
	r.end()
	r.words = r.words[1:]
	return r.bashLine, ok && len(r.words) > 0
}

// bashReader is the state of readBashLine.
type bashReader struct {
	bashLine
	breaks          string // COMP_WORDBREAKS
	word            strings.Builder
	started, active bool
	broken, quoted  int // how much of the word's text is before the last break and before the last quote
}

func (r *bashReader) end() {
	if r.started {
		r.words = append(r.words, r.word.String())
	}
	r.word.Reset()
	r.started, r.active, r.broken = false, false, 0
}

// escaped adds the byte after a backslash. Between quotes the backslash itself is literal before most bytes.
func (r *bashReader) escaped(c byte) {
	if r.quote != 0 && strings.IndexByte("$`\"\\", c) < 0 {
		r.word.WriteByte('\\')
	}
	r.word.WriteByte(c)
}

func (r *bashReader) add(c byte) {
	r.started = true
	switch {
	case r.quote != 0 && c == r.quote:
		r.quote = 0
	case r.quote == '\'':
		r.word.WriteByte(c)
	case r.quote == 0 && (c == '\'' || c == '"'):
		r.quote, r.quoted = c, r.word.Len()
	default:
		r.active = r.active || c == '$' || c == '`' || r.quote == 0 && strings.IndexByte(";|&()<>", c) >= 0
		r.word.WriteByte(c)
		if r.quote == 0 && strings.IndexByte(r.breaks, c) >= 0 {
			r.broken = r.word.Len()
		}
	}
}
