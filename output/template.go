package output

import (
	"bytes"
	"fmt"
	"strings"
	"text/template"
	"unicode"

	"k8s.io/client-go/util/jsonpath"
)

// templateFunctions are the ones that crictl's templates may call, and join.
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

// title upper-cases the first letter of each word; an underscore, as in
// CONTAINER_RUNNING, is part of one.
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

// NewGoTemplate compiles a Go template. A name that the document lacks is an
// error, not "<no value>".
func NewGoTemplate(text string) (Format, error) {
	t, err := template.New("output").Option("missingkey=error").Funcs(templateFunctions).Parse(text)
	if err != nil {
		return Format{}, fmt.Errorf("parse the template: %s", strings.TrimPrefix(err.Error(), "template: output:"))
	}
	return Format{Kind: GoTemplate, Template: text, compiled: func(document any) (string, error) {
		var b bytes.Buffer
		if err := t.Execute(&b, document); err != nil {
			return "", fmt.Errorf("apply the template: %s", strings.TrimPrefix(err.Error(), "template: output:"))
		}
		return b.String(), nil
	}}, nil
}

// newJSONPath compiles a JSONPath template as kubectl has it. The braces may
// be left away around a single expression.
func newJSONPath(text string) (Format, error) {
	full := text
	if !strings.Contains(full, "{") {
		full = "{" + full + "}"
		if !strings.HasPrefix(text, ".") && !strings.HasPrefix(text, "[") && !strings.HasPrefix(text, "$") && !strings.HasPrefix(text, "@") {
			full = "{." + text + "}"
		}
	}
	if full == "{.}" {
		full = "{@}" // what kubectl's users mean by it
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(full); err != nil {
		return Format{}, fmt.Errorf("parse the jsonpath %q: %w", text, err)
	}
	return Format{Kind: JSONPath, Template: text, compiled: func(document any) (string, error) {
		var b bytes.Buffer
		if err := path.Execute(&b, document); err != nil {
			return "", fmt.Errorf("apply the jsonpath %q: %w", text, err)
		}
		return b.String(), nil
	}}, nil
}
