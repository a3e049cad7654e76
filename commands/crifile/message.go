package crifile

import (
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
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

// plain is a name without the marks by which snake_case and camelCase differ.
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
