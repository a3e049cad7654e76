package manifest

import (
	"fmt"
	"strings"
)

// Error is one problem in an input.
type Error struct {
	File     string // "-" for standard input, may be empty
	Document int    // counted from 1, empty documents included
	Line     int    // the document's first line, or 0
	Path     string // spec.containers[0].image
	Problem  string
}

// Error renders "web.yaml: document 2: spec.containers[0].image: required".
func (e *Error) Error() string {
	var parts []string
	if e.File != "" {
		parts = append(parts, fileName(e.File))
	}
	if e.Document > 0 {
		parts = append(parts, fmt.Sprintf("document %d", e.Document))
	}
	if e.Path != "" {
		parts = append(parts, e.Path)
	}
	return strings.Join(append(parts, e.Problem), ": ")
}

func fileName(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

// Errors are all the problems of an input, in its order.
type Errors []*Error

// Error has one problem per line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns each of them.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

func (e Errors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	return e
}
