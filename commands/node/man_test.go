package node

import (
	"strings"
	"testing"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// TestEscape: no character of a usage is taken for Markdown.
func TestEscape(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"[IP:]HOST:CONTAINER[/udp]", "a*b*c", "a_b_c", "<none>:<none>", "a|b|c", "`x`", `a\b`, "#1", "~/.docker", "a && b", "[x](y)"} {
		page := string(md2man.Render([]byte("# X\n\n" + escape(text) + "\n")))
		read := strings.NewReplacer(`\-`, "-", `\[rs]`, `\`, `\\`, `\`, `\&`, "", `\e`, `\`).Replace(page)
		if !strings.Contains(read, "\n"+text+"\n") {
			t.Errorf("%q became %q", text, page)
		}
	}
}
