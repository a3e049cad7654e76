package output

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"unicode"

	"k8s.io/client-go/util/jsonpath"
)

// Kind is the kind of an output format. Default is a table for lists and JSON for inspections.
type Kind int

const (
	Default Kind = iota
	Table
	Wide
	JSON
	JSONL
	YAML
	Name
	goTemplate
	jsonPath
)

type Format struct {
	Kind     Kind
	compiled renderer // set for a template
}

// renderer applies a compiled template to a decoded JSON document.
type renderer func(document any) (string, error)

var formatNames = []string{"table", "wide", "json", "jsonl", "yaml", "name", "go-template=TEMPLATE", "jsonpath=TEMPLATE"}

var kindsByName = map[string]Kind{
	"": Default, "table": Table, "wide": Wide, "json": JSON, "jsonl": JSONL, "yaml": YAML, "name": Name,
}

// FormatNames lists the formats of ParseFormat for help texts.
func FormatNames() string { return strings.Join(formatNames, "|") }

// ParseFormat parses the value of -o. It compiles templates, so that mistakes are found before any dial.
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
		return newGoTemplate(template)
	case "jsonpath":
		if template == "" {
			return Format{}, errors.New("output format jsonpath needs an expression: jsonpath='{.items[*].id}'")
		}
		return newJSONPath(template)
	}
	return Format{}, fmt.Errorf("unknown output format %q: must be one of %s", s, strings.ReplaceAll(FormatNames(), "|", ", "))
}

// ForMachines reports whether the format is meant for programs.
func (f Format) ForMachines() bool {
	return f.Kind != Default && f.Kind != Table && f.Kind != Wide
}

// templateFunctions are the functions of crictl's templates, and join.
var templateFunctions = template.FuncMap{
	"json": func(v any) (string, error) {
		b, err := compactJSON(v)
		return string(EscapeJSON(b)), err
	},
	"lower": strings.ToLower,
	"upper": strings.ToUpper,
	"title": title,
	"join": func(sep string, list []any) string {
		parts := make([]string, len(list))
		for i, v := range list {
			parts[i] = fmt.Sprint(v)
		}
		return strings.Join(parts, sep)
	},
}

// title capitalizes each word. An underscore, as in CONTAINER_RUNNING, does not end a word.
func title(s string) string {
	previous := ' '
	return strings.Map(func(r rune) rune {
		defer func() { previous = r }()
		if unicode.IsLetter(previous) || unicode.IsDigit(previous) || previous == '_' {
			return r
		}
		return unicode.ToTitle(r)
	}, s)
}

// newGoTemplate compiles a Go template. A field that the document lacks is an error.
func newGoTemplate(text string) (Format, error) {
	t, err := template.New("output").Option("missingkey=error").Funcs(templateFunctions).Parse(text)
	if err != nil {
		return Format{}, fmt.Errorf("parse the template: %s", strings.TrimPrefix(err.Error(), "template: output:"))
	}
	return Format{Kind: goTemplate, compiled: func(document any) (string, error) {
		var b bytes.Buffer
		if err := t.Execute(&b, document); err != nil {
			return "", fmt.Errorf("apply the template: %s", strings.TrimPrefix(err.Error(), "template: output:"))
		}
		return b.String(), nil
	}}, nil
}

// newJSONPath compiles a kubectl JSONPath template. The braces around a single expression are optional.
func newJSONPath(text string) (Format, error) {
	full := text
	if !strings.Contains(full, "{") {
		full = "{" + full + "}"
		if !strings.HasPrefix(text, ".") && !strings.HasPrefix(text, "[") && !strings.HasPrefix(text, "$") && !strings.HasPrefix(text, "@") {
			full = "{." + text + "}"
		}
	}
	if full == "{.}" {
		full = "{@}" // the library takes {.} for a field with an empty name
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(full); err != nil {
		return Format{}, fmt.Errorf("parse the jsonpath %q: %w", text, err)
	}
	return Format{Kind: jsonPath, compiled: func(document any) (string, error) {
		var b bytes.Buffer
		if err := path.Execute(&b, document); err != nil {
			return "", fmt.Errorf("apply the jsonpath %q: %w", text, err)
		}
		return b.String(), nil
	}}, nil
}
