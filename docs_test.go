package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page returns a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pages lists all that people read about the project.
func pages(t *testing.T) []string {
	t.Helper()
	inDocs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	atTop, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(inDocs, atTop...)
}

// TestEveryPromiseNamesATest checks that each test and script that a page names exists, and that
// docs/reliability.md and SECURITY.md name one for each fault.
func TestEveryPromiseNamesATest(t *testing.T) {
	tests := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(page(t, path), -1) {
			tests[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pages(t) {
		text := page(t, name)
		for _, test := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(text, -1) {
			if !tests[test] {
				t.Errorf("%s names %s, which does not exist", name, test)
			}
		}
		for _, m := range regexp.MustCompile("`((?:cri|docker|containerd|plain)/[a-z_]+)`").FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("testdata/script", m[1]+".txtar")); err != nil {
				t.Errorf("%s names a script that does not exist: %v", name, err)
			}
		}
	}
	rows := regexp.MustCompile(`(?m)^\| .* \|$`).FindAllString(page(t, "docs/reliability.md")+page(t, "SECURITY.md"), -1)
	if len(rows) < 90 {
		t.Errorf("docs/reliability.md and SECURITY.md have only %d rows", len(rows))
	}
	for _, row := range rows {
		if !strings.HasSuffix(row, "| shown by |") && !regexp.MustCompile(`(Test|Fuzz)[A-Z]|script`).MatchString(row) {
			t.Errorf("no test is named in %s", row)
		}
	}
}
