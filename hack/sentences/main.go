// Command sentences lists sentences in comments and docs without a clear subject, and fails if there are too many. make
// lint runs it.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

const limit = 60

var (
	beginning = regexp.MustCompile(`(?:^|[.!?:|]\s+|^[-*#\d.]+\s+)(?:What|Where|That|Those|Who|Whoever)\b[^.]{0,50}`)
	phrase    = regexp.MustCompile(`(?i)\b(?:is none|are none|is no [a-z]|those that|one that|that of)\b.{0,30}`)
	code      = regexp.MustCompile("(?s)```.*?```|(?m)^    .*$|`[^`]*`")
)

func main() {
	found, err := tree()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sentences:", err)
		os.Exit(1)
	}
	if len(found) >= limit || len(os.Args) > 1 {
		fmt.Println(strings.Join(found, "\n"))
	}
	if len(found) >= limit {
		fmt.Fprintf(os.Stderr, "sentences: %d sentences have no noun as their subject, want fewer than %d\n", len(found), limit)
		os.Exit(1)
	}
}

func tree() (found []string, err error) {
	out, err := exec.Command("git", "ls-files", "*.go", "*.md").Output()
	if err != nil {
		return nil, fmt.Errorf("list the files: %w", err)
	}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(name, ".md") {
			found = append(found, docs(name, string(text))...)
			continue
		}
		lines, err := comments(name, text)
		if err != nil {
			return nil, err
		}
		found = append(found, lines...)
	}
	return found, nil
}

// docs treats each line of a page as a paragraph. Removed code keeps its line breaks, so that line numbers stay
// correct.
func docs(name, text string) (found []string) {
	text = code.ReplaceAllStringFunc(text, func(s string) string { return "x" + strings.Repeat("\n", strings.Count(s, "\n")) })
	for i, line := range strings.Split(text, "\n") {
		found = append(found, matches(fmt.Sprintf("%s:%d", name, i+1), line)...)
	}
	return found
}

func comments(name string, text []byte) (found []string, err error) {
	if bytes.Contains(text, []byte("// Code generated")) {
		return nil, nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, group := range file.Comments {
		found = append(found, matches(fmt.Sprintf("%s:%d", name, files.Position(group.Pos()).Line), joined(group))...)
	}
	return found, nil
}

func joined(group *ast.CommentGroup) string { return strings.Join(strings.Fields(group.Text()), " ") }

func matches(where, text string) (found []string) {
	for _, pattern := range []*regexp.Regexp{beginning, phrase} {
		for _, m := range pattern.FindAllString(text, -1) {
			found = append(found, where+": "+strings.TrimSpace(m))
		}
	}
	return found
}
