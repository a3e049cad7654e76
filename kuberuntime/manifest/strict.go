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

type problem struct{ path, text string }

// checkShape compares a decoded JSON value with its Go type and lists all differences. The JSON decoder would stop at
// the first difference, and would not know the path for types with their own decoding, such as quantities.
func checkShape(path string, v any, t reflect.Type) (out []problem) {
	if v == nil {
		return nil
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		data, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(data, reflect.New(t).Interface())
		}
		if err != nil {
			return []problem{{path, fmt.Sprintf("invalid %s: %s%s", data, decodeHints[t], cleanDecodeError(err))}}
		}
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return checkShape(path, v, t.Elem())
	case reflect.Struct:
		object, ok := v.(map[string]any)
		if !ok {
			return wrongType(path, v, "an object")
		}
		fields := jsonFields(t)
		for _, key := range slices.Sorted(maps.Keys(object)) {
			if field, known := fields[key]; known {
				out = append(out, checkShape(join(path, key), object[key], field)...)
			} else {
				out = append(out, problem{join(path, key), unknownField(key, fields)})
			}
		}
	case reflect.Map:
		object, ok := v.(map[string]any)
		if !ok {
			return wrongType(path, v, "a map")
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			out = append(out, checkShape(path+"["+key+"]", object[key], t.Elem())...)
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return checkBase64(path, v)
		}
		list, ok := v.([]any)
		if !ok {
			return wrongType(path, v, "a list")
		}
		for i, element := range list {
			out = append(out, checkShape(fmt.Sprintf("%s[%d]", path, i), element, t.Elem())...)
		}
	default:
		return checkScalar(path, v, t)
	}
	return out
}

// decodeHints are prefixes for decoder messages that do not name the expected form.
var decodeHints = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time]():        "must be a time such as 2026-01-02T15:04:05Z: ",
	reflect.TypeFor[intstr.IntOrString](): "must be a number or a string: ",
}

func cleanDecodeError(err error) string {
	return strings.TrimPrefix(err.Error(), "json: ")
}

func checkBase64(path string, v any) []problem {
	text, ok := v.(string)
	if !ok {
		return wrongType(path, v, "base64 text")
	}
	if _, err := base64.StdEncoding.DecodeString(text); err != nil {
		return []problem{{path, "is not base64"}}
	}
	return nil
}

func checkScalar(path string, v any, t reflect.Type) []problem {
	var ok bool
	must := "a whole number"
	number, isNumber := v.(json.Number)
	switch t.Kind() {
	case reflect.Interface:
		return nil
	case reflect.String:
		_, ok = v.(string)
		must = "a string"
		if _, list := v.([]any); !list {
			must += " (put it in quotes)"
		}
	case reflect.Bool:
		_, ok = v.(bool)
		must = "true or false"
	case reflect.Float32, reflect.Float64:
		ok, must = isNumber, "a number"
	default:
		ok = isNumber && json.Unmarshal([]byte(number), reflect.New(t).Interface()) == nil
	}
	if ok {
		return nil
	}
	return wrongType(path, v, must)
}

func wrongType(path string, v any, must string) []problem {
	got := fmt.Sprint(v)
	switch v := v.(type) {
	case map[string]any:
		got = "object"
	case []any:
		got = "list"
	case string:
		got = fmt.Sprintf("string %q", v)
	case json.Number:
		got = "number " + v.String()
	}
	return []problem{{path, fmt.Sprintf("invalid %s: must be %s", got, must)}}
}

// jsonFields maps the JSON names of a struct's fields to their types, including embedded structs.
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
	if path == "" || key == "" {
		return path + key
	}
	return path + "." + key
}
