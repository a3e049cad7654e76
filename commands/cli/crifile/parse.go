// Package crifile reads CRI messages that people write by hand: pod and container configurations in JSON or YAML.
//
// Messages are read as protojson reads them: an unknown field is an error, field names are in snake_case or camelCase,
// enum values are names or numbers, and 64-bit integers may be quoted. Only values of environment variables differ:
// they are plain text, as in crictl's files, and not base64.
package crifile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/crishim/crishim/internal/lazyregexp"
)

// Document is one YAML document, or one JSON text, of a file.
type Document struct {
	name   string // of the file, for errors
	json   []byte
	lines  bool         // json is the unchanged text of the file, with the same line numbers
	node   *yamlv3.Node // the document as YAML, which includes JSON; has line numbers
	fields map[string]any
}

// Parse returns the documents of a file, without empty documents.
func Parse(name string, text []byte) ([]Document, error) {
	if json.Valid(text) {
		var node yamlv3.Node
		_ = yamlv3.Unmarshal(text, &node) // a failure only costs line numbers in errors of Decode
		return []Document{newDocument(name, text, true, &node)}, nil
	}
	// A single decoder reads all documents, so that line numbers count from the start of the file.
	decoder := yamlv3.NewDecoder(bytes.NewReader(text))
	var docs []Document
	for {
		var node yamlv3.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		var converted []byte
		if err == nil {
			converted, err = toJSON(&node)
		}
		if err != nil {
			return nil, syntaxError(name, text, err)
		}
		if string(converted) != "null" {
			docs = append(docs, newDocument(name, converted, false, &node))
		}
	}
}

// newDocument parses a JSON text and encodes the values of environment variables: they are bytes in CRI, for which
// protojson expects base64. The encoded text has lost the line numbers of the file.
func newDocument(name string, text []byte, lines bool, node *yamlv3.Node) Document {
	d := Document{name: name, json: text, lines: lines, node: node}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&d.fields) != nil {
		return d // the text is not an object: Decode returns the error
	}
	envs, _ := d.fields["envs"].([]any)
	for _, env := range envs {
		variable, _ := env.(map[string]any)
		if value, ok := variable["value"].(string); ok {
			variable["value"] = []byte(value)
		}
	}
	if len(envs) > 0 {
		d.json, _ = json.Marshal(d.fields) // values decoded from JSON can be encoded
		d.lines = false
	}
	return d
}

func toJSON(node *yamlv3.Node) ([]byte, error) {
	if err := node.Decode(new(any)); err != nil { // finds duplicate keys and too many aliases
		return nil, err
	}
	text, err := yamlv3.Marshal(node)
	if err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(text)
}

var yamlLine = lazyregexp.New(`(?s)^yaml: (?:unmarshal errors:\s*)?line (\d+): ([^\n]*).*`)

// syntaxError adds the file's name and the line to an error. A text in braces is more likely to be wrong JSON than
// wrong YAML.
func syntaxError(name string, text []byte, err error) error {
	var syntax *json.SyntaxError
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && errors.As(json.Unmarshal(text, new(any)), &syntax) {
		return fmt.Errorf("%s:%d: malformed JSON: %w", name, 1+bytes.Count(text[:syntax.Offset], []byte("\n")), syntax)
	}
	if found := yamlLine.FindStringSubmatch(err.Error()); found != nil {
		return fmt.Errorf("%s:%s: malformed YAML: %s", name, found[1], found[2])
	}
	return fmt.Errorf("%s: malformed YAML: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
}

// ParseOne parses a text that holds exactly one document.
func ParseOne(name string, text []byte) (Document, error) {
	docs, err := Parse(name, text)
	switch {
	case err != nil:
		return Document{}, err
	case len(docs) == 0:
		return Document{}, fmt.Errorf("%s: the file is empty", name)
	case len(docs) > 1:
		return Document{}, fmt.Errorf("%s: must be one document, found %d", name, len(docs))
	}
	return docs[0], nil
}

// Decode fills m from the document.
func (d Document) Decode(m proto.Message) error {
	err := protojson.Unmarshal(d.json, m)
	if err == nil {
		return nil
	}
	if d.fields != nil {
		if path, problem := locate(d.fields, m.ProtoReflect().Type()); problem != "" {
			return fmt.Errorf("%s%s: %s", d.name, lineOf(d.node, path), problem)
		}
	}
	where, text := d.name, strings.TrimSpace(strings.TrimPrefix(err.Error(), "proto:"))
	if found := position.FindStringSubmatch(text); found != nil && d.lines {
		where += ":" + found[1]
	}
	return fmt.Errorf("%s: %s", where, position.ReplaceAllString(text, ""))
}

var position = lazyregexp.New(`(?:syntax error )?\(line (\d+:\d+)\): `)

// Has reports whether the document sets a field. path has the names of the fields from the document down to this field.
func (d Document) Has(path ...string) bool {
	var value any = d.fields
	for _, name := range path {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	return value != nil
}
