package test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Page returns the text of a file.
func Page(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Typed returns the commands in the blocks of a section of README.md, without what is said behind them.
func Typed(t testing.TB, section string) (lines []string) {
	t.Helper()
	_, text, ok := strings.Cut(Page(t, "README.md"), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("README.md has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range regexp.MustCompile(`(?m)^    (.+?)(?: +# .*)?$`).FindAllStringSubmatch(text, -1) {
		lines = append(lines, m[1])
	}
	return lines
}
