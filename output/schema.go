package output

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// documents are the verbs whose -o json is a document of this package, and what it is.
var documents = map[string]func(*schemas) map[string]any{
	"ps":             listOf("containers", &runtimeapi.Container{}),
	"pods":           listOf("items", &runtimeapi.PodSandbox{}),
	"images":         listOf("images", &runtimeapi.Image{}),
	"stats":          listOf("stats", &runtimeapi.ContainerStats{}),
	"statsp":         listOf("stats", &runtimeapi.PodSandboxStats{}),
	"inspect":        inspected(&runtimeapi.ContainerStatus{}),
	"inspectp":       inspected(&runtimeapi.PodSandboxStatus{}),
	"inspecti":       inspected(&runtimeapi.Image{}),
	"metricsp":       message(&runtimeapi.ListPodSandboxMetricsResponse{}),
	"metricdescs":    message(&runtimeapi.ListMetricDescriptorsResponse{}),
	"version":        message(&runtimeapi.VersionResponse{}),
	"runtime-config": message(&runtimeapi.RuntimeConfigResponse{}),
	"events":         message(&runtimeapi.ContainerEventResponse{}),
	"imagefsinfo": func(s *schemas) map[string]any {
		return object(map[string]any{"status": s.message(&runtimeapi.ImageFsInfoResponse{})}, "status")
	},
	"info": func(s *schemas) map[string]any {
		return object(map[string]any{
			"status":          s.message(&runtimeapi.RuntimeStatus{}),
			"runtimeHandlers": s.value(reflect.TypeFor[[]*runtimeapi.RuntimeHandler]()),
			"features":        s.value(reflect.TypeFor[*runtimeapi.RuntimeFeatures]()),
		}, "status")
	},
	"endpoints": rowsOf[Endpoint]("endpoints"),
	"doctor":    rowsOf[Finding]("findings"),
	"config":    rowsOf[Setting]("settings"),
	"history":   rowsOf[HistoryEntry]("history"),
	"who":       rowsOf[Owner]("owners"),
	"df":        rowsOf[DiskUse]("usage"),
}

// SchemaVerbs lists the verbs whose documents this package writes.
func SchemaVerbs() []string { return slices.Sorted(maps.Keys(documents)) }

// Schema returns the JSON schema of what a verb of SchemaVerbs prints with -o json. A runtime may
// be newer: fields that are not in the schema are allowed.
func Schema(verb string) map[string]any { return schemaOf(verb, documents[verb]) }

// ValueSchema returns the JSON schema of a value of a type, which the verb prints with Value.
func ValueSchema(verb string, t reflect.Type) map[string]any {
	return schemaOf(verb, func(s *schemas) map[string]any { return s.value(t) })
}

func schemaOf(verb string, document func(*schemas) map[string]any) map[string]any {
	s := &schemas{definitions: map[string]any{}}
	root := document(s)
	root["$schema"], root["title"] = "https://json-schema.org/draft/2020-12/schema", "crishim "+verb+" -o json"
	if len(s.definitions) > 0 {
		root["$defs"] = s.definitions
	}
	return root
}

func message(m proto.Message) func(*schemas) map[string]any {
	return func(s *schemas) map[string]any { return s.message(m) }
}

func listOf(key string, m proto.Message) func(*schemas) map[string]any {
	return func(s *schemas) map[string]any {
		return object(map[string]any{key: array(s.message(m))}, key)
	}
}

func rowsOf[T any](key string) func(*schemas) map[string]any {
	return func(s *schemas) map[string]any {
		return object(map[string]any{key: array(s.value(reflect.TypeFor[T]()))}, key)
	}
}

// inspected returns one object for one argument, an array for several.
func inspected(status proto.Message) func(*schemas) map[string]any {
	return func(s *schemas) map[string]any {
		one := object(map[string]any{"status": s.message(status)}, "status")
		definition, _ := s.definitions[string(status.ProtoReflect().Descriptor().Name())].(map[string]any)
		fields, _ := definition["properties"].(map[string]any)
		for _, name := range inspectedTimes {
			if fields[name] != nil {
				fields[name] = map[string]any{"type": "string", "format": "date-time"}
			}
		}
		s.definitions["inspection"] = one
		reference := map[string]any{"$ref": "#/$defs/inspection"}
		return map[string]any{"anyOf": []any{reference, array(reference)}}
	}
}

func object(properties map[string]any, required ...string) map[string]any {
	o := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

func array(items map[string]any) map[string]any {
	return map[string]any{"type": "array", "items": items}
}

// schemas collects the definitions of the messages and structs that a document has in it.
type schemas struct{ definitions map[string]any }

// message returns the schema of a message as marshalProto writes it: all fields are there but
// messages that are not set.
func (s *schemas) message(m proto.Message) map[string]any {
	return s.descriptor(m.ProtoReflect().Descriptor())
}

func (s *schemas) descriptor(m protoreflect.MessageDescriptor) map[string]any {
	name := string(m.Name())
	if _, known := s.definitions[name]; !known {
		s.definitions[name] = nil // for messages that hold themselves
		properties, required := map[string]any{}, []string{}
		for i := range m.Fields().Len() {
			field := m.Fields().Get(i)
			properties[field.JSONName()] = s.field(field)
			if !field.HasPresence() {
				required = append(required, field.JSONName())
			}
		}
		s.definitions[name] = object(properties, required...)
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

func (s *schemas) field(field protoreflect.FieldDescriptor) map[string]any {
	switch {
	case field.IsMap():
		return map[string]any{"type": "object", "additionalProperties": s.single(field.MapValue())}
	case field.IsList():
		return array(s.single(field))
	}
	return s.single(field)
}

func (s *schemas) single(field protoreflect.FieldDescriptor) map[string]any {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return s.descriptor(field.Message())
	case protoreflect.EnumKind:
		var names []any
		for i := range field.Enum().Values().Len() {
			names = append(names, string(field.Enum().Values().Get(i).Name()))
		}
		// A value that this version does not know is a number.
		return map[string]any{"anyOf": []any{map[string]any{"enum": names}, map[string]any{"type": "integer"}}}
	case protoreflect.StringKind, protoreflect.BytesKind:
		return map[string]any{"type": "string"}
	case protoreflect.BoolKind:
		return map[string]any{"type": "boolean"}
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return map[string]any{"type": []any{"number", "string"}} // NaN is a string
	case protoreflect.Int64Kind, protoreflect.Uint64Kind, protoreflect.Sint64Kind:
		return map[string]any{"type": "string", "pattern": "^-?[0-9]+$"}
	}
	return map[string]any{"type": "integer"}
}

// value returns the schema of what encoding/json writes of a type.
func (s *schemas) value(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case strings.HasPrefix(t.PkgPath(), "k8s.io/api/"):
		return map[string]any{"type": "object", "description": t.String() + " of the Kubernetes API"}
	case t.Kind() == reflect.Pointer:
		return map[string]any{"anyOf": []any{s.value(t.Elem()), map[string]any{"type": "null"}}}
	case t.Kind() == reflect.Slice:
		return map[string]any{"anyOf": []any{array(s.value(t.Elem())), map[string]any{"type": "null"}}}
	case t.Kind() == reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.value(t.Elem())}
	case t.Kind() == reflect.Struct:
		properties, required := map[string]any{}, []string{}
		for _, field := range reflect.VisibleFields(t) {
			name, options, tagged := strings.Cut(field.Tag.Get("json"), ",")
			if !field.IsExported() || name == "" || name == "-" {
				continue
			}
			properties[name] = s.value(field.Type)
			if !tagged || !strings.HasPrefix(options, "omit") {
				required = append(required, name)
			}
		}
		return object(properties, required...)
	case t.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case t.Kind() == reflect.String:
		if one, ok := reflect.Zero(t).Interface().(interface{ Enum() []string }); ok { // which says all its values
			return map[string]any{"type": "string", "enum": one.Enum()}
		}
		return map[string]any{"type": "string"}
	}
	return map[string]any{"type": "number"}
}
