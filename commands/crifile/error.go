package crifile

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/crishim/crishim/client/suggest"
)

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

// Hint is what was probably meant, where that can be guessed.
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

// found is kindOf, but for what may be a secret: the environment of a container.
func found(where protoreflect.Descriptor, n *yaml.Node) string {
	secret := where.Name() == "envs" || where.Name() == "KeyValue" || where.Parent() != nil && where.Parent().Name() == "KeyValue"
	switch {
	case !secret || n.Kind != yaml.ScalarNode || n.Tag == "!!null":
		return kindOf(n)
	case n.Tag == "!!int", n.Tag == "!!float":
		return "a number"
	case n.Tag == "!!bool":
		return "true or false"
	}
	return "a string"
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
