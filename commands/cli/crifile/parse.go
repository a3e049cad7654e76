// Package crifile reads CRI messages that people write by hand: pod and
// container configurations in JSON or YAML.
//
// Reading is strict. A field that the message does not have is an error with
// file, line and column, and with the name that was probably meant. Field
// names may be in snake_case or camelCase, enum values are names (with or
// without the enum's prefix, in any case) or numbers, 64-bit integers may be
// quoted, and a wrapped integer may stand without its wrapper.
package crifile

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/crishim/crishim/internal/lazyregexp"
)

// file is where messages are read from, for the errors.
type file struct{ name string }

// Document is one YAML document, or one JSON text, of a file.
type Document struct {
	file file
	node *yaml.Node
}

// Parse takes a file's text apart. Empty documents are left out.
func Parse(name string, text []byte) ([]Document, error) {
	f := file{name}
	if isJSON(text) {
		if err := f.checkJSON(text); err != nil {
			return nil, err
		}
		// A tab is white space in JSON and forbidden in YAML's; strings
		// cannot hold one in either.
		text = bytes.ReplaceAll(text, []byte("\t"), []byte(" "))
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var docs []Document
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
			docs = append(docs, Document{f, root})
		}
	}
}

// ParseOne is Parse of a text that holds exactly one document.
func ParseOne(name string, text []byte) (Document, error) {
	docs, err := Parse(name, text)
	if err != nil {
		return Document{}, err
	}
	switch len(docs) {
	case 0:
		return Document{}, &Error{File: name, Text: "the file is empty"}
	case 1:
		return docs[0], nil
	}
	return Document{}, docs[1].file.errorf(docs[1].node, "must be one document, found a second")
}

// Decode fills m from the document.
func (d Document) Decode(m proto.Message) error {
	return d.file.message(d.node, m.ProtoReflect())
}

// Has reports whether the document has a field, in any spelling: a field of the
// message itself, or, by more names, of a message in it.
func (d Document) Has(path ...string) bool {
	n := d.node
	for _, name := range path {
		if n = valueOf(n, name); n == nil {
			return false
		}
	}
	return true
}

// valueOf returns a field's value in a mapping, nil where there is none.
func valueOf(n *yaml.Node, field string) *yaml.Node {
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		if value := target(n.Content[i+1]); plain(n.Content[i].Value) == plain(field) && value.Tag != "!!null" {
			return value
		}
	}
	return nil
}

func isJSON(text []byte) bool {
	trimmed := bytes.TrimLeft(text, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{' && !strings.Contains(string(text), "\n---")
}

// checkJSON finds what is no JSON. YAML's flow style looks the same at first,
// so what YAML can read is left to it.
func (f file) checkJSON(text []byte) error {
	err := json.Unmarshal(text, new(any))
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) || yaml.Unmarshal(text, new(yaml.Node)) == nil {
		return nil
	}
	line, column := position(text, int(syntax.Offset))
	return &Error{File: f.name, Line: line, Column: column, Text: "malformed JSON: " + syntax.Error()}
}

func position(text []byte, offset int) (line, column int) {
	before := text[:min(max(offset-1, 0), len(text))]
	return bytes.Count(before, []byte("\n")) + 1, offset - 1 - bytes.LastIndexByte(before, '\n')
}

var yamlLine = lazyregexp.New(`^yaml: line (\d+): `)

// syntaxError puts the line that the YAML reader names where ours stands.
func (f file) syntaxError(err error) error {
	text := err.Error()
	e := &Error{File: f.name, Text: "malformed YAML: " + strings.TrimPrefix(text, "yaml: ")}
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		e.Line, _ = strconv.Atoi(found[1])
		e.Text = "malformed YAML: " + strings.TrimPrefix(text, found[0])
	}
	return e
}

// Settings gives each setting of a file with one YAML map from names to values
// to set, as the text that a flag of that name would get; a list is its parts
// with commas between them. A mistake is an *Error with its line: of those are
// names that are not among known, and what set refuses.
func Settings(name string, text []byte, known []string, set func(name, value string) error) error {
	docs, err := Parse(name, text)
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
