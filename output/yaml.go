package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2" // what sigs.k8s.io/yaml writes with, and so the same bytes
)

// marshalYAML writes a JSON document as YAML. The library writes what moves or
// reorders text as it is, so such strings go through it under stand-ins, and
// stand in the end between double quotes, with escapes. Programs read the same text.
func marshalYAML(root []byte) ([]byte, error) {
	// sigs.k8s.io/yaml would read the JSON with the parser of YAML, which
	// takes longer than all the rest.
	document, err := decode(root)
	if err != nil {
		return nil, err
	}
	s := standIns{prefix: "escaped"}
	for bytes.Contains(root, []byte(s.prefix)) {
		s.prefix += "0"
	}
	document = s.replace(numbers(document))
	out, err := yaml.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encode as YAML: %w", err)
	}
	if len(s.texts) > 0 {
		out = []byte(strings.NewReplacer(s.texts...).Replace(string(out)))
	}
	return out, nil
}

// standIns are words without any meaning to YAML, and the escaped strings whose
// places they keep.
type standIns struct {
	prefix string
	texts  []string // name, text, name, text ...
}

// replace puts stand-ins in the place of the strings in v that need escapes.
func (s *standIns) replace(v any) any {
	switch v := v.(type) {
	case string:
		return s.replaceString(v)
	case []any:
		for i, e := range v {
			v[i] = s.replace(e)
		}
	case map[string]any:
		for k, e := range v {
			name := s.replaceString(k)
			if name != k {
				delete(v, k)
			}
			v[name] = s.replace(e)
		}
	}
	return v
}

// longKey is from where on YAML writes a key on a line of its own. A stand-in for
// a key that is longer has to be so too.
const longKey = 128

func (s *standIns) replaceString(text string) string {
	if strings.IndexFunc(text, dangerous) < 0 {
		return text
	}
	quoted := quoteYAML(text)
	name := s.prefix + "-" + strconv.Itoa(len(s.texts)) + "-"
	if len(quoted) >= longKey {
		name += strings.Repeat("x", longKey)
	}
	name += "."
	s.texts = append(s.texts, name, quoted)
	return name
}

// quoteYAML writes a string between double quotes. The escapes of JSON are YAML's
// too, but for runes that take two of them.
func quoteYAML(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r > 0xffff && dangerous(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		case dangerous(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			quoted, err := json.Marshal(string(r)) // of a string: no error
			if err == nil {
				b.Write(quoted[1 : len(quoted)-1])
			}
		}
	}
	return `"` + b.String() + `"`
}
