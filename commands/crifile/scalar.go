package crifile

import (
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// scalar reads a value that is no message, list or mapping.
//
//nolint:gocyclo // one flat switch over kinds
func (f *file) scalar(n *yaml.Node, field protoreflect.FieldDescriptor) (value protoreflect.Value, err error) {
	if n.Kind != yaml.ScalarNode {
		return value, f.errorf(n, "%s must be %s, found %s", field.Name(), wanted(field), found(field, n))
	}
	switch field.Kind() {
	case protoreflect.EnumKind:
		return f.enum(n, field)
	case protoreflect.StringKind:
		if n.Tag == "!!str" || n.Tag == "!!timestamp" {
			return protoreflect.ValueOfString(n.Value), nil
		}
	case protoreflect.BytesKind: // the value of an environment variable
		if n.Tag == "!!str" || n.Tag == "!!timestamp" {
			return protoreflect.ValueOfBytes([]byte(n.Value)), nil
		}
	case protoreflect.BoolKind:
		var v bool
		if n.Tag == "!!bool" && n.Decode(&v) == nil {
			return protoreflect.ValueOfBool(v), nil
		}
	case protoreflect.DoubleKind:
		var v float64
		if (n.Tag == "!!float" || n.Tag == "!!int") && n.Decode(&v) == nil {
			return protoreflect.ValueOfFloat64(v), nil
		}
	default:
		return f.integer(n, field)
	}
	bad := f.errorf(n, "%s must be %s, found %s", field.Name(), wanted(field), found(field, n))
	if wanted(field) == "a string" {
		bad.hint = "put it in quotes: " + strconv.Quote(n.Value)
	}
	return value, bad
}

func (f *file) integer(n *yaml.Node, field protoreflect.FieldDescriptor) (value protoreflect.Value, err error) {
	signed, unsigned, ok := int64(0), uint64(0), false
	switch n.Tag {
	case "!!int":
		ok = n.Decode(&signed) == nil
		if n.Decode(&unsigned) == nil && !ok {
			signed, ok = math.MaxInt64, field.Kind() == protoreflect.Uint64Kind
		}
	case "!!str": // protojson quotes 64-bit integers
		signed, err = strconv.ParseInt(n.Value, 10, 64)
		ok, unsigned = err == nil, uint64(signed)
	}
	switch {
	case !ok:
		return value, f.errorf(n, "%s must be %s, found %s", field.Name(), wanted(field), found(field, n))
	case field.Kind() == protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(signed), nil
	case field.Kind() == protoreflect.Int32Kind && signed == int64(int32(signed)):
		return protoreflect.ValueOfInt32(int32(signed)), nil
	case field.Kind() == protoreflect.Uint32Kind && signed == int64(uint32(signed)):
		return protoreflect.ValueOfUint32(uint32(signed)), nil
	case field.Kind() == protoreflect.Uint64Kind && signed >= 0:
		return protoreflect.ValueOfUint64(unsigned), nil
	}
	return value, f.errorf(n, "%s: %s is out of range", field.Name(), n.Value)
}

// enum reads a value's name, with or without what all names of the enum begin
// with, or its number.
func (f *file) enum(n *yaml.Node, field protoreflect.FieldDescriptor) (value protoreflect.Value, err error) {
	values := field.Enum().Values()
	if n.Tag == "!!int" {
		number, err := strconv.ParseInt(n.Value, 0, 32)
		if err == nil && values.ByNumber(protoreflect.EnumNumber(number)) != nil {
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(number)), nil
		}
	}
	prefix := enumPrefix(values)
	var known []string
	for i := range values.Len() {
		name := string(values.Get(i).Name())
		short := strings.TrimPrefix(name, prefix)
		if strings.EqualFold(n.Value, name) || strings.EqualFold(n.Value, short) {
			return protoreflect.ValueOfEnum(values.Get(i).Number()), nil
		}
		known = append(known, name)
	}
	bad := f.errorf(n, "%s must be %s, found %s", field.Name(), alternatives(known), kindOf(n))
	return value, bad.guess(strings.ToUpper(n.Value), known)
}

// enumPrefix is what the names of an enum have in common, up to a '_'.
func enumPrefix(values protoreflect.EnumValueDescriptors) string {
	if values.Len() < 2 {
		return ""
	}
	prefix := string(values.Get(0).Name())
	for i := range values.Len() {
		for !strings.HasPrefix(string(values.Get(i).Name()), prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return prefix[:strings.LastIndexByte(prefix, '_')+1]
}

func alternatives(names []string) string {
	if len(names) > 8 {
		return "one of " + strings.Join(names[:8], ", ") + ", ..."
	}
	return "one of " + strings.Join(names, ", ")
}

// wanted says what a field takes.
func wanted(field protoreflect.FieldDescriptor) string {
	switch field.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind:
		return "a string"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.EnumKind:
		return "the name of a value"
	}
	return "a number"
}
