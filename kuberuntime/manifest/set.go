package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Source says where in the input an object was.
type Source struct {
	File     string
	Document int
	Line     int
	Path     string // items[3] inside a List
}

// Pod is a Pod of the input with its origin.
type Pod struct {
	*v1.Pod
	Source Source
}

// Set is what an input holds. ConfigMaps and Secrets are keyed "namespace/name".
type Set struct {
	Pods           []Pod
	ConfigMaps     map[string]*v1.ConfigMap
	Secrets        map[string]*v1.Secret
	RuntimeClasses map[string]*nodev1.RuntimeClass
	seen           map[string]Source
}

// NewSet is an empty set.
func NewSet() *Set {
	return &Set{
		ConfigMaps:     map[string]*v1.ConfigMap{},
		Secrets:        map[string]*v1.Secret{},
		RuntimeClasses: map[string]*nodev1.RuntimeClass{},
		seen:           map[string]Source{},
	}
}

func (s *Set) add(file string, data []byte) Errors {
	var out Errors
	for _, doc := range split(data) {
		src := Source{File: file, Document: doc.number, Line: doc.line}
		value, err := decodeDocument(doc.data)
		if err != nil {
			out = append(out, src.error("", yamlProblem(err, doc.line)))
			continue
		}
		out = append(out, s.addValue(src, value)...)
	}
	return out
}

// decodeDocument turns YAML or JSON into maps, lists and scalars with exact numbers.
func decodeDocument(data []byte) (any, error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	err = dec.Decode(&v)
	return v, err
}

// yamlProblem drops the library's prefixes; its line numbers count from the document.
func yamlProblem(err error, firstLine int) string {
	text := strings.ReplaceAll(err.Error(), "error converting YAML to JSON: ", "")
	text = strings.ReplaceAll(text, "unmarshal errors:\n", "")
	text = strings.Join(strings.Fields(strings.TrimPrefix(text, "yaml: ")), " ")
	if firstLine > 1 {
		text += fmt.Sprintf(" (the document starts at line %d)", firstLine)
	}
	return "not valid YAML: " + text
}

func (s Source) error(path, problem string) *Error {
	switch {
	case s.Path != "" && path != "":
		path = s.Path + "." + path
	case s.Path != "":
		path = s.Path
	}
	return &Error{File: s.File, Document: s.Document, Line: s.Line, Path: path, Problem: problem}
}

func (s *Set) addValue(src Source, value any) Errors {
	object, ok := value.(map[string]any)
	if !ok {
		return Errors{src.error("", "is not an object with apiVersion and kind")}
	}
	kind, _ := object["kind"].(string)
	version, _ := object["apiVersion"].(string)
	if kind == "" {
		return Errors{src.error("kind", "required")}
	}
	wanted, known := kinds[kind]
	if !known {
		return Errors{src.error("kind", fmt.Sprintf("%s is not supported; crishim runs Pod, List, ConfigMap, Secret and RuntimeClass documents", kind))}
	}
	if version != wanted {
		return Errors{src.error("apiVersion", fmt.Sprintf("got %q, want %q for a %s", version, wanted, kind))}
	}
	if strings.HasSuffix(kind, "List") {
		return s.addList(src, object, strings.TrimSuffix(kind, "List"))
	}
	return s.addObject(src, kind, object)
}

// kinds are the supported kinds with their API version.
var kinds = map[string]string{
	"Pod": "v1", "ConfigMap": "v1", "Secret": "v1", "RuntimeClass": "node.k8s.io/v1",
	"List": "v1", "PodList": "v1", "ConfigMapList": "v1", "SecretList": "v1",
}

// addList adds the items of a List. In a PodList and its like items may leave out what
// the list's kind says already.
func (s *Set) addList(src Source, list map[string]any, kind string) Errors {
	items, ok := list["items"].([]any)
	if !ok && list["items"] != nil {
		return Errors{src.error("items", "want a list")}
	}
	var out Errors
	for _, key := range sortedKeys(list) {
		if key != "items" && key != "kind" && key != "apiVersion" && key != "metadata" {
			out = append(out, src.error(key, "unknown field"))
		}
	}
	for i, item := range items {
		at := src
		at.Path = join(src.Path, fmt.Sprintf("items[%d]", i))
		if object, ok := item.(map[string]any); ok && kind != "" {
			if object["kind"] == nil {
				object["kind"] = kind
			}
			if object["apiVersion"] == nil {
				object["apiVersion"] = "v1"
			}
		}
		out = append(out, s.addValue(at, item)...)
	}
	return out
}

func (s *Set) addObject(src Source, kind string, object map[string]any) Errors {
	switch kind {
	case "Pod":
		pod := &v1.Pod{}
		return s.decode(src, object, pod, &pod.ObjectMeta, kind, func() {
			// What some cluster once observed and decided says nothing about this host.
			pod.Status = v1.PodStatus{}
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil
			s.Pods = append(s.Pods, Pod{pod, src})
		})
	case "ConfigMap":
		cm := &v1.ConfigMap{}
		return s.decode(src, object, cm, &cm.ObjectMeta, kind, func() { s.ConfigMaps[key(cm.Namespace, cm.Name)] = cm })
	case "Secret":
		secret := &v1.Secret{}
		return s.decode(src, object, secret, &secret.ObjectMeta, kind, func() {
			mergeStringData(secret)
			s.Secrets[key(secret.Namespace, secret.Name)] = secret
		})
	default:
		class := &nodev1.RuntimeClass{}
		return s.decode(src, object, class, &class.ObjectMeta, kind, func() {
			class.Namespace = ""
			s.RuntimeClasses[class.Name] = class
		})
	}
}

// mergeStringData does what an API server does with stringData.
func mergeStringData(secret *v1.Secret) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for k, v := range secret.StringData {
		secret.Data[k] = []byte(v)
	}
	secret.StringData = nil
}

// decode fills into from object, and calls use when it is sound and the first of its name.
func (s *Set) decode(src Source, object map[string]any, into any, meta *metav1.ObjectMeta, kind string, use func()) Errors {
	var out Errors
	for _, p := range checkShape("", object, reflect.TypeOf(into).Elem()) {
		out = append(out, src.error(p.path, p.text))
	}
	if len(out) > 0 {
		return out
	}
	data, err := json.Marshal(object)
	if err != nil {
		return Errors{src.error("", err.Error())}
	}
	if err := json.Unmarshal(data, into); err != nil {
		var typeError *json.UnmarshalTypeError
		if errors.As(err, &typeError) {
			return Errors{src.error(typeError.Field, cleanDecodeError(err))}
		}
		return Errors{src.error("", cleanDecodeError(err))}
	}
	if meta.Namespace == "" {
		meta.Namespace = "default"
	}
	id := kind + " " + key(meta.Namespace, meta.Name)
	if first, twice := s.seen[id]; twice && meta.Name != "" {
		return Errors{src.error("metadata.name", fmt.Sprintf("%s is already defined in %s, document %d", id, fileName(first.File), first.Document))}
	}
	s.seen[id] = src
	use()
	return nil
}

func key(namespace, name string) string { return namespace + "/" + name }

// finish fills in defaults and validates every object.
func (s *Set) finish() Errors {
	out := s.validateObjects()
	for _, pod := range s.Pods {
		Default(pod.Pod)
		for _, e := range Validate(pod.Pod, s) {
			out = append(out, pod.Source.error(e.Field, e.ErrorBody()))
		}
	}
	return out
}
