package crifile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/crishim/crishim/client/suggest"
	"github.com/crishim/crishim/internal/lazyregexp"
)

// file is where messages are read from, for the errors.
type file struct{ name string }

type settingsDocument struct {
	file file
	node *yaml.Node
}

func nodes(name string, text []byte) ([]settingsDocument, error) {
	f := file{name}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var docs []settingsDocument
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, f.syntaxError(err)
		}
		if root := node.Content[0]; root.Tag != "!!null" {
			docs = append(docs, settingsDocument{f, root})
		}
	}
}

// Settings gives each setting of a file with one YAML map from names to values
// to set, as the text that a flag of that name would get; a list is its parts
// with commas between them. A mistake is an *Error with its line: of those are
// names that are not among known, and what set refuses.
func Settings(name string, text []byte, known []string, set func(name, value string) error) error {
	docs, err := nodes(name, text)
	if err != nil || len(docs) == 0 {
		return err
	}
	f, n := docs[0].file, docs[0].node
	if len(docs) > 1 {
		return f.errorf(docs[1].node, "must be one document, found a second")
	}
	if n.Kind != yaml.MappingNode {
		return f.errorf(n, "must be lines \"name: value\", found %s", kindOf(n))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !slices.Contains(known, key.Value) {
			return f.errorf(key, "there is no flag %q", key.Value).guess(key.Value, known)
		}
		value, err := f.setting(key.Value, target(n.Content[i+1]))
		if err != nil {
			return err
		}
		if err := set(key.Value, value); err != nil {
			return f.errorf(key, "%s: %v", key.Value, err)
		}
	}
	return nil
}

// setting returns a value as it would stand on the command line.
func (f *file) setting(name string, n *yaml.Node) (string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag != "!!null":
		return n.Value, nil
	case n.Kind == yaml.SequenceNode:
		parts := make([]string, len(n.Content))
		for i, part := range n.Content {
			text, err := f.setting(name, target(part))
			if err != nil {
				return "", err
			}
			parts[i] = text
		}
		return strings.Join(parts, ","), nil
	}
	return "", f.errorf(n, "%s must be a text, a number, true or false, or a list of those, found %s", name, kindOf(n))
}

var settingsLine = lazyregexp.New(`^yaml: line (\d+): `)

// syntaxError puts the line that the YAML reader names where ours stands.
func (f file) syntaxError(err error) error {
	text := err.Error()
	e := &Error{File: f.name, Text: "malformed YAML: " + strings.TrimPrefix(text, "yaml: ")}
	if found := settingsLine.FindStringSubmatch(text); found != nil {
		e.Line, _ = strconv.Atoi(found[1])
		e.Text = "malformed YAML: " + strings.TrimPrefix(text, found[0])
	}
	return e
}

func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// Error is a mistake in a file.
type Error struct {
	File         string
	Line, Column int // from 1; 0 where not known
	Text         string
	hint         string
}

func (e *Error) Error() string {
	where := e.File
	if e.Line > 0 {
		where += ":" + strconv.Itoa(e.Line)
		if e.Column > 0 {
			where += ":" + strconv.Itoa(e.Column)
		}
	}
	return where + ": " + e.Text
}

// Hint returns what was probably meant, where that can be guessed.
func (e *Error) Hint() string { return e.hint }

func (f *file) errorf(n *yaml.Node, format string, args ...any) *Error {
	return &Error{File: f.name, Line: n.Line, Column: n.Column, Text: fmt.Sprintf(format, args...)}
}

// guess adds what a misspelt word most likely means.
func (e *Error) guess(word string, known []string) *Error {
	if best := suggest.Closest(word, known); best != "" {
		e.hint = fmt.Sprintf("did you mean %q?", best)
	}
	return e
}

// kindOf names a node as its writer would.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return n.Value
	case "!!null":
		return "nothing"
	}
	return strconv.Quote(shortened(n.Value))
}

func shortened(s string) string {
	if r := []rune(s); len(r) > 40 {
		return strings.TrimSpace(string(r[:40])) + "..."
	}
	return s
}
