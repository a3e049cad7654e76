package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v2" // the encoder of sigs.k8s.io/yaml, for identical output
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// marshalProto returns the JSON of a CRI message as crictl prints it: all fields present, lowerCamelCase names, enums
// by name, 64-bit integers as strings. It removes protojson's spaces, which differ between builds on purpose.
func marshalProto(m proto.Message) ([]byte, error) {
	raw, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s as JSON: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	var b bytes.Buffer
	b.Grow(len(raw))
	if err := json.Compact(&b, raw); err != nil {
		return nil, fmt.Errorf("encode %s as JSON: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return b.Bytes(), nil
}

// compactJSON encodes v without escaping HTML and without a final newline.
func compactJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode as JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decode returns raw as maps, slices and json.Number.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode JSON: %w", err)
	}
	return v, nil
}

// numbers replaces each json.Number by the first of int64, uint64 and float64 that can hold it. Go templates must compare
// and print numbers, and a json.Number is a string.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = numbers(e)
		}
	case []any:
		for i, e := range v {
			v[i] = numbers(e)
		}
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		if u, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return u
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
	}
	return v
}

func renderDocument(w io.Writer, root []byte, kind Kind, compiled renderer) error {
	var out []byte
	switch kind {
	case JSON:
		var b bytes.Buffer
		if err := json.Indent(&b, root, "", "  "); err != nil {
			return fmt.Errorf("indent JSON: %w", err)
		}
		b.WriteByte('\n')
		out = EscapeJSON(b.Bytes())
	case YAML:
		var err error
		if out, err = marshalYAML(root); err != nil {
			return err
		}
	case goTemplate, jsonPath:
		document, err := decode(root)
		if err != nil {
			return err
		}
		text, err := compiled(numbers(document))
		if err != nil {
			return err
		}
		out = []byte(text)
		if len(out) == 0 || out[len(out)-1] != '\n' {
			out = append(out, '\n')
		}
	default:
		return fmt.Errorf("output format %d is not for documents", kind)
	}
	_, err := w.Write(out)
	return err
}

// EscapeJSON replaces characters that affect a terminal by \u escapes. Parsers read the same text. In JSON such
// characters occur in strings only.
func EscapeJSON(b []byte) []byte {
	if bytes.IndexFunc(b, harmful) < 0 {
		return b
	}
	var out []byte
	for _, r := range string(b) {
		switch {
		case !harmful(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// marshalYAML converts a JSON document to YAML. The library does not escape characters that move or reorder text. Such
// strings are replaced by placeholders before encoding, and the placeholders by double-quoted strings with escapes
// afterwards. Parsers read the same text.
func marshalYAML(root []byte) ([]byte, error) {
	// sigs.k8s.io/yaml would parse the JSON with a YAML parser, which takes longer than everything else here.
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

// standIns are placeholders without special meaning in YAML and the escaped strings for them.
type standIns struct {
	prefix string
	texts  []string // placeholder, text, placeholder, text, ...
}

// replace substitutes placeholders for the strings in v that need escapes.
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

// longKey is the length above which the YAML library writes a key as "? key". Parsers reject the form "key: value" for
// keys of more than 1024 characters. The escaped key later replaces its placeholder, so the placeholder of a long key
// is also longer than longKey and gets the same form.
const longKey = 128

func (s *standIns) replaceString(text string) string {
	if strings.IndexFunc(text, harmful) < 0 {
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

// quoteYAML double-quotes a string. JSON's escapes are valid in YAML except surrogate pairs.
func quoteYAML(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r > 0xffff && harmful(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		case harmful(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			quoted, err := json.Marshal(string(r)) // cannot fail for a string
			if err == nil {
				b.Write(quoted[1 : len(quoted)-1])
			}
		}
	}
	return `"` + b.String() + `"`
}
