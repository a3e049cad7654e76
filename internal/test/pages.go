package test

import (
	"errors"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

// EnterRoot makes the root of the repository the working directory, before a TestMain runs the tests. Results are then not
// cached: go test would look for the files that tests read in the package's directory.
func EnterRoot() error {
	flag.Parse()
	return errors.Join(os.Chdir("../.."), flag.Set("test.testlogfile", ""))
}

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
