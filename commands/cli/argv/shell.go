package argv

import "strings"

// ShellWords returns words quoted for a shell.
func ShellWords(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i], _ = BashQuote(word, 0)
	}
	return strings.Join(quoted, " ")
}

// BashQuote quotes text for a bash command line. If quote is not 0, the text is inserted after this opening quote. The
// second result is false for text that cannot be quoted in this way.
func BashQuote(text string, quote byte) (string, bool) {
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
