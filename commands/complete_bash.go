package commands

import (
	"context"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// completeBashVerb is what bash's script calls with the line up to the cursor and
// COMP_WORDBREAKS. bash puts what it gets into the line as it is: names of somebody
// else's containers must come quoted, and only the part that it replaces.
const completeBashVerb = "__complete-bash"

func completeBash(ctx context.Context, env *Env, app *cli.App, args []string) {
	if len(args) != 2 {
		return
	}
	line, ok := readBashLine(args[0], args[1])
	if !ok {
		return
	}
	for _, one := range completions(ctx, env, app, line.words) {
		text := one.value
		if text != completeFiles {
			if text, ok = bashQuote(strings.TrimPrefix(text, line.kept), line.quote); !ok {
				continue
			}
		}
		_, _ = io.WriteString(env.Out, text+"\n")
	}
}

// bashLine is a command line whose last word is open, as bash and readline see it.
type bashLine struct {
	words []string // after the program's name, without their quotes
	kept  string   // the beginning of the last word, which readline does not replace
	quote byte     // the quote that is open, or 0
}

// readBashLine takes a line apart without expanding anything. It reports false where the
// last word is more than text: what a variable or a command stands for is not known.
func readBashLine(text, breaks string) (line bashLine, ok bool) {
	var word strings.Builder
	var started, active bool
	broken, quoted := 0, 0 // how much of the word's text is before the last break and before the last quote
	end := func() {
		if started {
			line.words = append(line.words, word.String())
		}
		word.Reset()
		started, active, broken = false, false, 0
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		blank := line.quote == 0 && strings.IndexByte(" \t\n", c) >= 0
		if blank {
			end()
			continue
		}
		started = true
		switch {
		case line.quote != 0 && c == line.quote:
			line.quote = 0
		case line.quote == '\'':
			word.WriteByte(c)
		case c == '\\':
			if i++; i < len(text) {
				if line.quote != 0 && strings.IndexByte("$`\"\\", text[i]) < 0 {
					word.WriteByte(c)
				}
				word.WriteByte(text[i])
			}
		case line.quote == 0 && (c == '\'' || c == '"'):
			line.quote, quoted = c, word.Len()
		default:
			active = active || c == '$' || c == '`' || line.quote == 0 && strings.IndexByte(";|&()<>", c) >= 0
			word.WriteByte(c)
			if line.quote == 0 && strings.IndexByte(breaks, c) >= 0 {
				broken = word.Len()
			}
		}
	}
	last := word.String()
	line.kept = last[:broken]
	if line.quote != 0 {
		line.kept = last[:quoted]
	}
	ok = !active
	started = true
	end()
	line.words = line.words[1:]
	return line, ok && len(line.words) > 0
}

// bashQuote returns text as it must be written in a bash command line, behind an open quote
// if there is one. It reports false for what cannot be written there.
func bashQuote(text string, quote byte) (string, bool) {
	if quote != 0 && strings.HasSuffix(text, string(quote)) {
		return "", false // readline would not close the quote
	}
	switch quote {
	case '\'':
		return strings.ReplaceAll(text, "'", `'\''`), true
	case '"':
		// The history is expanded there in spite of a backslash.
		return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(text), !strings.Contains(text, "!")
	}
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < 0x80 && !isLetterOrDigit(c) && strings.IndexByte("_./:=@%+,-", c) < 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	return b.String(), true
}

func isLetterOrDigit(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
