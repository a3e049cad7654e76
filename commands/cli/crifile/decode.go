package crifile

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/crishim/crishim/client/suggest"
)

// message fills m from a mapping.
func (f *file) message(n *yaml.Node, m protoreflect.Message) error {
	n = target(n)
	if n.Tag == "!!null" {
		return nil
	}
	descriptor := m.Descriptor()
	if n.Kind != yaml.MappingNode {
		return f.bareWrapper(n, m)
	}
	seen := map[protoreflect.Name]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], target(n.Content[i+1])
		field := fieldNamed(descriptor, key.Value)
		if field == nil {
			return f.errorf(key, "unknown field %q in %s", key.Value, descriptor.Name()).guess(key.Value, fieldNames(descriptor))
		}
		if first := seen[field.Name()]; first > 0 {
			return f.errorf(key, "field %q is there twice, first in line %d", key.Value, first)
		}
		seen[field.Name()] = key.Line
		if value.Tag == "!!null" {
			continue
		}
		if err := f.field(value, m, field); err != nil {
			return err
		}
	}
	return nil
}

// bareWrapper reads 5 where {"value": 5} is meant.
func (f *file) bareWrapper(n *yaml.Node, m protoreflect.Message) error {
	fields := m.Descriptor().Fields()
	if n.Kind == yaml.ScalarNode && fields.Len() == 1 && fields.Get(0).Name() == "value" {
		return f.field(n, m, fields.Get(0))
	}
	return f.errorf(n, "%s must be an object, found %s", m.Descriptor().Name(), found(m.Descriptor(), n))
}

func (f *file) field(n *yaml.Node, m protoreflect.Message, field protoreflect.FieldDescriptor) error {
	switch {
	case field.IsMap():
		return f.mapping(n, m.Mutable(field).Map(), field)
	case field.IsList():
		return f.list(n, m.Mutable(field).List(), field)
	case field.Message() != nil:
		return f.message(n, m.Mutable(field).Message())
	}
	value, err := f.scalar(n, field)
	if err != nil {
		return err
	}
	m.Set(field, value)
	return nil
}

func (f *file) list(n *yaml.Node, list protoreflect.List, field protoreflect.FieldDescriptor) error {
	if n.Kind != yaml.SequenceNode {
		return f.errorf(n, "%s must be a list, found %s", field.Name(), found(field, n))
	}
	for _, item := range n.Content {
		item = target(item)
		if field.Message() != nil {
			element := list.NewElement()
			if err := f.message(item, element.Message()); err != nil {
				return err
			}
			list.Append(element)
			continue
		}
		value, err := f.scalar(item, field)
		if err != nil {
			return err
		}
		list.Append(value)
	}
	return nil
}

func (f *file) mapping(n *yaml.Node, values protoreflect.Map, field protoreflect.FieldDescriptor) error {
	if n.Kind != yaml.MappingNode {
		return f.errorf(n, "%s must be an object, found %s", field.Name(), found(field, n))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, item := n.Content[i], target(n.Content[i+1])
		at := protoreflect.ValueOfString(key.Value).MapKey()
		if values.Has(at) {
			return f.errorf(key, "%q is there twice in %s", key.Value, field.Name())
		}
		if field.MapValue().Message() != nil {
			element := values.NewValue()
			if err := f.message(item, element.Message()); err != nil {
				return err
			}
			values.Set(at, element)
			continue
		}
		value, err := f.scalar(item, field.MapValue())
		if err != nil {
			return err
		}
		values.Set(at, value)
	}
	return nil
}

func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// plain returns a name without the marks by which snake_case and camelCase differ.
func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

func fieldNamed(m protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	for i := range m.Fields().Len() {
		if field := m.Fields().Get(i); plain(string(field.Name())) == plain(name) {
			return field
		}
	}
	return nil
}

func fieldNames(m protoreflect.MessageDescriptor) []string {
	var names []string
	for i := range m.Fields().Len() {
		names = append(names, string(m.Fields().Get(i).Name()))
	}
	return names
}

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

// enumPrefix returns what the names of an enum have in common, up to a '_'.
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

// Error is a mistake in a file.
type Error struct {
	File         string
	Line, Column int // from 1; 0 where not known
	Text         string
	hint         string
}

func (e *Error) Error() string {
	where := e.File
	if e.Line > 0 {
		where += ":" + strconv.Itoa(e.Line)
		if e.Column > 0 {
			where += ":" + strconv.Itoa(e.Column)
		}
	}
	return where + ": " + e.Text
}

// Hint returns what was probably meant, where that can be guessed.
func (e *Error) Hint() string { return e.hint }

func (f *file) errorf(n *yaml.Node, format string, args ...any) *Error {
	return &Error{File: f.name, Line: n.Line, Column: n.Column, Text: fmt.Sprintf(format, args...)}
}

// guess adds what a misspelt word most likely means.
func (e *Error) guess(word string, known []string) *Error {
	if best := suggest.Closest(word, known); best != "" {
		e.hint = fmt.Sprintf("did you mean %q?", best)
	}
	return e
}

// found is kindOf, but for what may be a secret: the environment of a container.
func found(where protoreflect.Descriptor, n *yaml.Node) string {
	secret := where.Name() == "envs" || where.Name() == "KeyValue" || where.Parent() != nil && where.Parent().Name() == "KeyValue"
	switch {
	case !secret || n.Kind != yaml.ScalarNode || n.Tag == "!!null":
		return kindOf(n)
	case n.Tag == "!!int", n.Tag == "!!float":
		return "a number"
	case n.Tag == "!!bool":
		return "true or false"
	}
	return "a string"
}

// kindOf names a node as its writer would.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return n.Value
	case "!!null":
		return "nothing"
	}
	return strconv.Quote(shortened(n.Value))
}

func shortened(s string) string {
	if r := []rune(s); len(r) > 40 {
		return strings.TrimSpace(string(r[:40])) + "..."
	}
	return s
}
