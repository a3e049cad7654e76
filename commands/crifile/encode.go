package crifile

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Encode is a message as values for a JSON encoder, in the spelling that
// Decode and crictl read: snake_case, enums by name, what is not set left out.
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
