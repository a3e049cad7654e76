package crifile

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// locate finds the first wrong value of a document, because protojson's errors do not name it. It visits fields and map
// keys in alphabetical order. The elements of path are field names, map keys and list indexes. problem is an error text
// that begins with the path, or with the path of the message for an unknown field. It does not quote the value, which may
// be a secret in an environment variable. problem is empty if each value is valid by itself.
func locate(fields map[string]any, m protoreflect.MessageType) (path []string, problem string) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, all := fields[name], m.Descriptor().Fields()
		field := all.ByName(protoreflect.Name(name))
		if field == nil {
			field = all.ByJSONName(name)
		}
		fails := func(value any) bool {
			text, err := json.Marshal(map[string]any{name: value})
			return err != nil || protojson.Unmarshal(text, m.New().Interface()) != nil
		}
		if field == nil {
			return []string{name}, fmt.Sprintf("unknown field %q", name)
		}
		if !fails(value) {
			continue
		}
		list, isList := value.([]any)
		object, isObject := value.(map[string]any)
		path := []string{name}
		switch {
		case field.IsList() && isList:
			i := slices.IndexFunc(list, func(item any) bool { return fails([]any{item}) })
			if i < 0 {
				return nil, ""
			}
			path = append(path, fmt.Sprintf("[%d]", i))
			object, isObject = list[i].(map[string]any)
		case field.IsList():
			return path, name + ": must be a list"
		case field.IsMap() && isObject:
			for _, key := range slices.Sorted(maps.Keys(object)) {
				if fails(map[string]any{key: object[key]}) {
					return append(path, key), fmt.Sprintf("%s.%s: %s", name, key, mustBe(field.MapValue()))
				}
			}
			return nil, ""
		}
		before := strings.Join(path, "")
		if field.IsMap() {
			return path, before + ": must be a map"
		}
		if field.Message() == nil || !isObject {
			return path, before + ": " + mustBe(field)
		}
		message := m.New().NewField(field)
		if field.IsList() {
			message = message.List().NewElement()
		}
		within, problem := locate(object, message.Message().Type())
		if problem == "" {
			return nil, ""
		}
		separator := "."
		if strings.HasPrefix(problem, "unknown field ") {
			separator = ": "
		}
		return append(path, within...), before + separator + problem
	}
	return nil, ""
}

// mustBe returns the constraint on the values of a field.
func mustBe(field protoreflect.FieldDescriptor) string {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return "must be an object"
	case protoreflect.StringKind, protoreflect.BytesKind:
		return "must be a string"
	case protoreflect.BoolKind:
		return "must be true or false"
	case protoreflect.EnumKind:
		var names []string
		for i := range field.Enum().Values().Len() {
			names = append(names, string(field.Enum().Values().Get(i).Name()))
		}
		return "must be one of " + strings.Join(names, ", ")
	case protoreflect.Uint32Kind:
		return fmt.Sprintf("must be a number from 0 to %d", uint32(math.MaxUint32))
	case protoreflect.Int32Kind:
		return fmt.Sprintf("must be a number from %d to %d", math.MinInt32, math.MaxInt32)
	case protoreflect.Uint64Kind:
		return "must be a number from 0 on"
	}
	return "must be a number"
}

// lineOf returns ":LINE:COLUMN" of the deepest known element of a path.
func lineOf(node *yamlv3.Node, path []string) string {
	if node.Kind == yamlv3.DocumentNode {
		node = node.Content[0]
	}
	at := node
	for _, name := range path {
		if node.Kind == yamlv3.AliasNode {
			node = node.Alias
		}
		found := false
		switch node.Kind {
		case yamlv3.SequenceNode:
			for i, item := range node.Content {
				if fmt.Sprintf("[%d]", i) == name {
					at, node, found = item, item, true
					break
				}
			}
		case yamlv3.MappingNode:
			for i := 0; i+1 < len(node.Content); i += 2 {
				if node.Content[i].Value == name {
					at, node, found = node.Content[i], node.Content[i+1], true
					break
				}
			}
		}
		if !found { // the element is elsewhere in the text, for example in a mapping merged with <<
			break
		}
	}
	if at.Line == 0 {
		return ""
	}
	return fmt.Sprintf(":%d:%d", at.Line, at.Column)
}
