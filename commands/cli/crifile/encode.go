package crifile

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Encode returns a message as values for a JSON encoder, in the spelling that Decode and crictl read: fields in
// snake_case, enums by name, unset fields omitted.
func Encode(m proto.Message) any { return encodeMessage(m.ProtoReflect()) }

func encodeMessage(m protoreflect.Message) map[string]any {
	out := map[string]any{}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		out[string(field.Name())] = encodeField(field, value)
		return true
	})
	return out
}

func encodeField(field protoreflect.FieldDescriptor, value protoreflect.Value) any {
	switch {
	case field.IsMap():
		out := map[string]any{}
		value.Map().Range(func(key protoreflect.MapKey, item protoreflect.Value) bool {
			out[key.String()] = encodeValue(field.MapValue(), item)
			return true
		})
		return out
	case field.IsList():
		out := []any{}
		for i := range value.List().Len() {
			out = append(out, encodeValue(field, value.List().Get(i)))
		}
		return out
	}
	return encodeValue(field, value)
}

func encodeValue(field protoreflect.FieldDescriptor, value protoreflect.Value) any {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return encodeMessage(value.Message())
	case protoreflect.EnumKind:
		if named := field.Enum().Values().ByNumber(value.Enum()); named != nil {
			return string(named.Name())
		}
		return int32(value.Enum())
	case protoreflect.BytesKind:
		return string(value.Bytes())
	}
	return value.Interface()
}

// Schema returns the JSON schema of a message's documents in the spelling of Encode. The schema rejects field names in
// camelCase and quoted integers, which Decode reads.
func Schema(m protoreflect.MessageDescriptor) any {
	s := &schema{definitions: map[string]any{}}
	root := s.reference(m)
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$ref":    root["$ref"],
		"$defs":   s.definitions,
	}
}

type schema struct{ definitions map[string]any }

// reference returns a reference to a message's definition, and adds the definition if it is new.
func (s *schema) reference(m protoreflect.MessageDescriptor) map[string]any {
	name := string(m.Name())
	if _, known := s.definitions[name]; !known {
		s.definitions[name] = nil // ends the recursion for a message that contains itself
		properties := map[string]any{}
		for i := range m.Fields().Len() {
			field := m.Fields().Get(i)
			properties[string(field.Name())] = s.field(field)
		}
		s.definitions[name] = map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

func (s *schema) field(field protoreflect.FieldDescriptor) map[string]any {
	switch {
	case field.IsMap():
		return map[string]any{"type": "object", "additionalProperties": s.value(field.MapValue())}
	case field.IsList():
		return map[string]any{"type": "array", "items": s.value(field)}
	}
	return s.value(field)
}

func (s *schema) value(field protoreflect.FieldDescriptor) map[string]any {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return s.reference(field.Message())
	case protoreflect.EnumKind:
		var values []any
		for i := range field.Enum().Values().Len() {
			value := field.Enum().Values().Get(i)
			values = append(values, string(value.Name()), int32(value.Number()))
		}
		return map[string]any{"enum": values}
	case protoreflect.StringKind, protoreflect.BytesKind:
		return map[string]any{"type": "string"}
	case protoreflect.BoolKind:
		return map[string]any{"type": "boolean"}
	case protoreflect.DoubleKind:
		return map[string]any{"type": "number"}
	}
	return map[string]any{"type": "integer"}
}
