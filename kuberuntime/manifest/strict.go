package manifest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/crishim/crishim/client/suggest"
)

// problem is a field's path and what is wrong there.
type problem struct{ path, text string }

// checkShape walks a decoded JSON value beside the Go type that it is to become and says
// where they differ. The JSON decoder itself stops at the first difference and, for types
// with their own decoding such as quantities, does not know where it was.
func checkShape(path string, v any, t reflect.Type) []problem {
	if v == nil {
		return nil
	}
	if reflect.PointerTo(t).Implements(unmarshalerType) {
		return checkByDecoding(path, v, t)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return checkShape(path, v, t.Elem())
	case reflect.Struct:
		return checkStruct(path, v, t)
	case reflect.Map:
		return checkMap(path, v, t)
	case reflect.Slice:
		return checkSlice(path, v, t)
	case reflect.Interface:
		return nil
	default:
		return checkScalar(path, v, t)
	}
}

var unmarshalerType = reflect.TypeFor[json.Unmarshaler]()

// decodeHints go before a decoder's message that does not say it.
var decodeHints = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time]():        "want a time such as 2026-01-02T15:04:05Z: ",
	reflect.TypeFor[intstr.IntOrString](): "want a number or a string: ",
}

func checkByDecoding(path string, v any, t reflect.Type) []problem {
	data, err := json.Marshal(v)
	if err != nil {
		return []problem{{path, err.Error()}}
	}
	if err := json.Unmarshal(data, reflect.New(t).Interface()); err != nil {
		return []problem{{path, fmt.Sprintf("%s is not valid here: %s%s", data, decodeHints[t], cleanDecodeError(err))}}
	}
	return nil
}

// cleanDecodeError drops the decoder's own prefix.
func cleanDecodeError(err error) string {
	return strings.TrimPrefix(err.Error(), "json: ")
}

func checkStruct(path string, v any, t reflect.Type) []problem {
	object, ok := v.(map[string]any)
	if !ok {
		return []problem{wrongType(path, v, "an object")}
	}
	fields := jsonFields(t)
	var out []problem
	for _, key := range slices.Sorted(maps.Keys(object)) {
		field, known := fields[key]
		if !known {
			out = append(out, problem{join(path, key), unknownField(key, fields)})
			continue
		}
		out = append(out, checkShape(join(path, key), object[key], field)...)
	}
	return out
}

func checkMap(path string, v any, t reflect.Type) []problem {
	object, ok := v.(map[string]any)
	if !ok {
		return []problem{wrongType(path, v, "a map")}
	}
	var out []problem
	for _, key := range slices.Sorted(maps.Keys(object)) {
		out = append(out, checkShape(path+"["+key+"]", object[key], t.Elem())...)
	}
	return out
}

func checkSlice(path string, v any, t reflect.Type) []problem {
	if t.Elem().Kind() == reflect.Uint8 {
		text, ok := v.(string)
		if !ok {
			return []problem{wrongType(path, v, "base64 text")}
		}
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			return []problem{{path, "is not base64"}}
		}
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		return []problem{wrongType(path, v, "a list")}
	}
	var out []problem
	for i, element := range list {
		out = append(out, checkShape(fmt.Sprintf("%s[%d]", path, i), element, t.Elem())...)
	}
	return out
}

func checkScalar(path string, v any, t reflect.Type) []problem {
	want := "a string"
	switch t.Kind() {
	case reflect.String:
		if _, ok := v.(string); ok {
			return nil
		}
		if _, ok := v.([]any); !ok {
			want = "a string (put it in quotes)"
		}
	case reflect.Bool:
		if _, ok := v.(bool); ok {
			return nil
		}
		want = "true or false"
	case reflect.Float32, reflect.Float64:
		if _, ok := v.(json.Number); ok {
			return nil
		}
		want = "a number"
	default:
		if n, ok := v.(json.Number); ok {
			if json.Unmarshal([]byte(n), reflect.New(t).Interface()) == nil {
				return nil
			}
		}
		want = "a whole number"
	}
	return []problem{wrongType(path, v, want)}
}

func wrongType(path string, v any, want string) problem {
	var got string
	switch v := v.(type) {
	case map[string]any:
		got = "an object"
	case []any:
		got = "a list"
	case string:
		got = fmt.Sprintf("the string %q", v)
	case json.Number:
		got = "the number " + v.String()
	default:
		got = fmt.Sprintf("%v", v)
	}
	return problem{path, fmt.Sprintf("got %s, want %s", got, want)}
}

// jsonFields maps the JSON names of a struct to their types, embedded structs included.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			maps.Copy(fields, jsonFields(f.Type))
		case name != "":
			fields[name] = f.Type
		}
	}
	return fields
}

func unknownField(key string, fields map[string]reflect.Type) string {
	names := slices.Sorted(maps.Keys(fields))
	best := suggest.Closest(key, names)
	if i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, key) }); i >= 0 {
		best = names[i]
	}
	if best == "" {
		return "unknown field"
	}
	return fmt.Sprintf("unknown field (did you mean %q?)", best)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
