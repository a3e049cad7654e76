package output

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is the family of an output format.
type Kind int

// The kinds of output. Default means that the view chooses: a table for lists,
// JSON for inspections.
const (
	Default Kind = iota
	Table
	Wide
	JSON
	JSONL
	YAML
	Name
	GoTemplate
	JSONPath
)

// Format is a parsed -o value.
type Format struct {
	Kind     Kind
	Template string // of GoTemplate and JSONPath, else empty
	compiled renderer
}

// renderer applies a compiled template to a decoded JSON document.
type renderer func(document any) (string, error)

var formatNames = []string{"table", "wide", "json", "jsonl", "yaml", "name", "go-template=TEMPLATE", "jsonpath=TEMPLATE"}

var kindsByName = map[string]Kind{
	"": Default, "table": Table, "wide": Wide, "json": JSON, "jsonl": JSONL, "yaml": YAML, "name": Name,
}

// FormatNames lists what ParseFormat accepts, for help texts.
func FormatNames() string { return strings.Join(formatNames, "|") }

// ParseFormat reads the value of -o. A template is compiled here, so that a
// mistake in it is known before anything is dialled.
func ParseFormat(s string) (Format, error) {
	if kind, ok := kindsByName[s]; ok {
		return Format{Kind: kind}, nil
	}
	name, template, _ := strings.Cut(s, "=")
	switch name {
	case "go-template":
		if template == "" {
			return Format{}, errors.New("output format go-template needs a template: go-template='{{.status.id}}', or --template")
		}
		return NewGoTemplate(template)
	case "jsonpath":
		if template == "" {
			return Format{}, errors.New("output format jsonpath needs an expression: jsonpath='{.items[*].id}'")
		}
		return newJSONPath(template)
	}
	return Format{}, fmt.Errorf("unknown output format %q: must be %s", s, FormatNames())
}

// ForMachines reports whether programs, not people, read this format.
func (f Format) ForMachines() bool {
	return f.Kind != Default && f.Kind != Table && f.Kind != Wide
}
