package crifile

import "google.golang.org/protobuf/reflect/protoreflect"

// Schema is the JSON schema of what Decode reads into a message.
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

// reference points to a message's definition and makes it when it is new.
func (s *schema) reference(m protoreflect.MessageDescriptor) map[string]any {
	name := string(m.Name())
	if _, known := s.definitions[name]; !known {
		s.definitions[name] = nil // for messages that hold themselves
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
