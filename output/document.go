package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// marshalProto gives the JSON of a CRI message in crictl's shape: every field
// present, lowerCamelCase names, enums by name, 64-bit integers as strings.
// protojson's spacing differs between builds on purpose; it is removed here.
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

// decode gives raw as maps, slices and exact numbers.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode JSON: %w", err)
	}
	return v, nil
}

// numbers replaces each json.Number in v by an int64, a uint64 or a float64,
// the first that holds it: templates compare and print numbers, not strings.
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

// renderDocument writes a JSON document in one of the machine formats.
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
	case GoTemplate, JSONPath:
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

// dangerous runes are those that JSON allows in strings and a terminal obeys: the
// delete character, C1 controls, bidirectional and zero-width marks.
func dangerous(r rune) bool { return r == 0x7f || harmful(r) }

// EscapeJSON writes as \u escapes what a terminal would obey. Programs read the
// same text. Outside of strings there is none of it.
func EscapeJSON(b []byte) []byte {
	if bytes.IndexFunc(b, dangerous) < 0 {
		return b
	}
	var out []byte
	for _, r := range string(b) {
		switch {
		case !dangerous(r):
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

// list gives the compact JSON {"name":[items]}.
func list(name string, items [][]byte) []byte {
	var b bytes.Buffer
	b.WriteString(`{"` + name + `":[`)
	b.Write(bytes.Join(items, []byte(",")))
	b.WriteString("]}")
	return b.Bytes()
}

// marshalAll encodes each message.
func marshalAll[M proto.Message](messages []M) ([][]byte, error) {
	items := make([][]byte, len(messages))
	for i, m := range messages {
		b, err := marshalProto(m)
		if err != nil {
			return nil, err
		}
		items[i] = b
	}
	return items, nil
}

// Message writes any CRI message as a document; its default format is JSON.
func Message(w io.Writer, m proto.Message, o Options) error {
	return render(w, messageView(m), o)
}

func messageView(m proto.Message) view {
	v := view{
		root:     func() ([]byte, error) { return marshalProto(m) },
		names:    func() []string { return nil },
		fallback: JSON,
	}
	v.items = func() ([][]byte, error) {
		b, err := v.root()
		return [][]byte{b}, err
	}
	v.table = func(w io.Writer, _ Options) error {
		b, err := v.root()
		if err != nil {
			return err
		}
		return renderDocument(w, b, YAML, nil)
	}
	return v
}

// Value writes any value that encoding/json can encode, such as a view type of
// this package; table says how people see it, and may be nil.
func Value(w io.Writer, value any, o Options, table func(w io.Writer, o Options) error) error {
	v := view{
		root:     func() ([]byte, error) { return compactJSON(value) },
		names:    func() []string { return nil },
		fallback: JSON,
		table:    table,
	}
	v.items = func() ([][]byte, error) {
		b, err := v.root()
		return [][]byte{b}, err
	}
	if table != nil {
		v.fallback = Table
	} else {
		v.table = func(w io.Writer, _ Options) error {
			b, err := v.root()
			if err != nil {
				return err
			}
			return renderDocument(w, b, YAML, nil)
		}
	}
	return render(w, v, o)
}
