package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Source is where in the input an object was.
type Source struct {
	File     string // "-" for standard input
	Document int    // counted from 1, empty documents included
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

func (s *Set) add(file string, data []byte) Errors {
	var out Errors
	for _, doc := range split(data) {
		src := Source{File: file, Document: doc.number}
		objects, err := doc.splitJSON()
		if err != nil {
			out = append(out, src.error("", "not valid JSON: "+err.Error()))
		}
		for _, object := range objects {
			value, err := decodeDocument(object.data)
			if err != nil {
				out = append(out, src.error("", yamlProblem(err, doc.line)))
				continue
			}
			out = append(out, s.addValue(src, value)...)
		}
	}
	return out
}

var mergeKey = regexp.MustCompile(`(?m)(^|[\s{,])<<\s*:`)

// decodeDocument turns YAML or JSON into maps, lists and scalars with exact numbers.
func decodeDocument(data []byte) (any, error) {
	if mergeKey.Match(data) {
		merged, err := mergeKeys(data)
		if err != nil {
			return nil, err
		}
		data = merged
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	if err := checkEnd(data); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	err = dec.Decode(&v)
	return v, err
}

// checkEnd refuses text after an object in braces, which the decoder leaves out.
func checkEnd(data []byte) error {
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' || json.Valid(data) {
		return nil
	}
	dec := yamlv3.NewDecoder(bytes.NewReader(data))
	var node yamlv3.Node
	err := dec.Decode(&node)
	if err == nil {
		err = dec.Decode(&node)
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return errors.New("there is text after the object")
	}
	return err
}

// mergeKeys writes out what the merge keys (<<) of a document stand for: the strict decoder takes a key that overrides a merged one for
// a duplicate.
func mergeKeys(data []byte) ([]byte, error) {
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(data, &root); err != nil {
		return nil, err
	}
	if err := mergeNode(&root, map[*yamlv3.Node]bool{}); err != nil {
		return nil, err
	}
	return yamlv3.Marshal(&root)
}

func mergeNode(n *yamlv3.Node, done map[*yamlv3.Node]bool) error {
	if done[n] {
		return nil
	}
	done[n] = true
	for _, child := range n.Content {
		if err := mergeNode(child, done); err != nil {
			return err
		}
	}
	if n.Kind != yamlv3.MappingNode {
		return nil
	}
	var own, merged []*yamlv3.Node
	has := map[string]bool{}
	for pair := range slices.Chunk(n.Content, 2) {
		if pair[0].Tag == "!!merge" {
			merged = append(merged, pair[1])
			continue
		}
		own = append(own, pair...)
		has[pair[0].Value] = true
	}
	for _, from := range merged { // of several, the first that has a key
		sources := []*yamlv3.Node{from}
		if from.Kind == yamlv3.SequenceNode {
			sources = from.Content
		}
		for _, source := range sources {
			if source.Kind == yamlv3.AliasNode {
				source = source.Alias
			}
			if source.Kind != yamlv3.MappingNode {
				return fmt.Errorf("line %d: a merge key needs a map", source.Line)
			}
			for pair := range slices.Chunk(source.Content, 2) {
				if !has[pair[0].Value] {
					has[pair[0].Value] = true
					own = append(own, pair...)
				}
			}
		}
	}
	n.Content = own
	return nil
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
	s.Path = join(s.Path, path)
	return &Error{Source: s, Problem: problem}
}

func (s *Set) addValue(src Source, value any) Errors {
	object, ok := value.(map[string]any)
	if !ok {
		return Errors{src.error("", "is not an object with apiVersion and kind")}
	}
	kind, _ := object["kind"].(string)
	version, _ := object["apiVersion"].(string)
	if kind == "" {
		problem := src.error("kind", "required")
		if version == "" {
			problem.hint = criHint(src.File, object)
		}
		return Errors{problem}
	}
	wanted, known := kinds[kind]
	if !known {
		return Errors{src.error("kind", fmt.Sprintf("%s is not supported; crishim runs Pod, List, ConfigMap, Secret and RuntimeClass documents", kind))}
	}
	if version != wanted {
		return Errors{src.error("apiVersion", fmt.Sprintf("invalid %q: must be %q for a %s", version, wanted, kind))}
	}
	if strings.HasSuffix(kind, "List") {
		return s.addList(src, object, strings.TrimSuffix(kind, "List"))
	}
	return s.addObject(src, kind, object)
}

// criHint tells what to do with a configuration of the CRI, which is no manifest.
func criHint(file string, object map[string]any) string {
	if _, named := object["metadata"].(map[string]any); !named {
		return ""
	}
	if _, image := object["image"].(map[string]any); image {
		return fmt.Sprintf("this is a container's configuration of the CRI: `crishim create POD %s`", file)
	}
	return fmt.Sprintf("this is a pod's configuration of the CRI: `crishim runp %s`", file)
}

// kinds has the supported kinds with their API version.
var kinds = map[string]string{
	"Pod": "v1", "ConfigMap": "v1", "Secret": "v1", "RuntimeClass": "node.k8s.io/v1",
	"List": "v1", "PodList": "v1", "ConfigMapList": "v1", "SecretList": "v1",
}

// addList adds the items of a List. In a PodList and its like items may leave out what
// the list's kind says already.
func (s *Set) addList(src Source, list map[string]any, kind string) Errors {
	items, ok := list["items"].([]any)
	if !ok && list["items"] != nil {
		return Errors{src.error("items", "must be a list")}
	}
	var out Errors
	for _, key := range slices.Sorted(maps.Keys(list)) {
		if key != "items" && key != "kind" && key != "apiVersion" && key != "metadata" {
			out = append(out, src.error(key, "unknown field"))
		}
	}
	for i, item := range items {
		at := Source{src.File, src.Document, join(src.Path, fmt.Sprintf("items[%d]", i))}
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

// addObject adds an object that is well formed and the first of its name. One that pods refer to is
// checked, too: a name or a key that an API server refuses could never be referred to there.
func (s *Set) addObject(src Source, kind string, object map[string]any) Errors {
	switch kind {
	case "Pod":
		pod := &v1.Pod{}
		if errs := s.decode(src, kind, object, pod); len(errs) > 0 {
			return errs
		}
		// What some cluster once observed and decided says nothing about this host.
		pod.Status = v1.PodStatus{}
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil
		s.Pods = append(s.Pods, Pod{pod, src})
		return nil
	case "ConfigMap":
		cm := &v1.ConfigMap{}
		if errs := s.decode(src, kind, object, cm); len(errs) > 0 {
			return errs
		}
		s.ConfigMaps[key(cm.Namespace, cm.Name)] = cm
		errs := slices.Concat(checkText(src, "metadata.name", cm.Name, validation.IsDNS1123Subdomain), checkKeys(src, "data", cm.Data), checkKeys(src, "binaryData", cm.BinaryData))
		for _, key := range slices.Sorted(maps.Keys(cm.BinaryData)) {
			if _, twice := cm.Data[key]; twice {
				errs = append(errs, src.error("binaryData["+key+"]", "is in data already"))
			}
		}
		return errs
	case "Secret":
		secret := &v1.Secret{}
		if errs := s.decode(src, kind, object, secret); len(errs) > 0 {
			return errs
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		for k, v := range secret.StringData { // as an API server does
			secret.Data[k] = []byte(v)
		}
		secret.StringData = nil
		s.Secrets[key(secret.Namespace, secret.Name)] = secret
		return slices.Concat(checkText(src, "metadata.name", secret.Name, validation.IsDNS1123Subdomain), checkKeys(src, "data", secret.Data), checkDockerConfig(src, secret))
	default:
		class := &nodev1.RuntimeClass{}
		if errs := s.decode(src, kind, object, class); len(errs) > 0 {
			return errs
		}
		class.Namespace = ""
		s.RuntimeClasses[class.Name] = class
		return slices.Concat(checkText(src, "metadata.name", class.Name, validation.IsDNS1123Subdomain), checkText(src, "handler", class.Handler, validation.IsDNS1123Label))
	}
}

func checkText(src Source, path, text string, check func(string) []string) Errors {
	problems := check(text)
	switch {
	case text == "":
		return Errors{src.error(path, "required")}
	case len(problems) > 0:
		return Errors{src.error(path, strings.Join(problems, "; "))}
	}
	return nil
}

func checkKeys[V any](src Source, path string, data map[string]V) (errs Errors) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
			errs = append(errs, src.error(path+"["+key+"]", strings.Join(problems, "; ")))
		}
	}
	return errs
}

// checkDockerConfig checks a pull secret. No message has anything of its content.
func checkDockerConfig(src Source, secret *v1.Secret) Errors {
	wanted, ok := map[v1.SecretType]string{v1.SecretTypeDockerConfigJson: v1.DockerConfigJsonKey, v1.SecretTypeDockercfg: v1.DockerConfigKey}[secret.Type]
	data, found := secret.Data[wanted]
	switch {
	case ok && !found:
		return Errors{src.error("data["+wanted+"]", "required for type "+string(secret.Type))}
	case ok && !json.Valid(data):
		return Errors{src.error("data["+wanted+"]", "is not JSON")}
	}
	return nil
}

// decode fills into from object, unless the set has one of its kind and name.
func (s *Set) decode(src Source, kind string, object map[string]any, into metav1.Object) Errors {
	var out Errors
	for _, p := range checkShape("", object, reflect.TypeOf(into).Elem()) {
		out = append(out, src.error(p.path, p.text))
	}
	if len(out) > 0 {
		return out
	}
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		path := ""
		if typeError, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			path = typeError.Field
		}
		return Errors{src.error(path, cleanDecodeError(err))}
	}
	if into.GetNamespace() == "" {
		into.SetNamespace("default")
	}
	id := kind + " " + key(into.GetNamespace(), into.GetName())
	if first, twice := s.seen[id]; twice && into.GetName() != "" {
		return Errors{src.error("metadata.name", fmt.Sprintf("%s is already defined in %s, document %d", id, fileName(first.File), first.Document))}
	}
	s.seen[id] = src
	return nil
}

func key(namespace, name string) string { return namespace + "/" + name }

// ConfigMap returns the data of a ConfigMap that a pod refers to, with its binaryData for volumes. It is empty
// where an optional one is missing.
func (s *Set) ConfigMap(namespace, name string, optional, binary bool) (map[string][]byte, error) {
	cm := s.ConfigMaps[key(namespace, name)]
	if cm == nil {
		return nil, notFound("ConfigMap", namespace, name, optional)
	}
	data := map[string][]byte{}
	if binary {
		maps.Copy(data, cm.BinaryData)
	}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	return data, nil
}

// Secret returns the data of a Secret that a pod refers to, empty where an optional one is missing.
func (s *Set) Secret(namespace, name string, optional bool) (map[string][]byte, error) {
	if secret := s.Secrets[key(namespace, name)]; secret != nil {
		return secret.Data, nil
	}
	return nil, notFound("Secret", namespace, name, optional)
}

func notFound(kind, namespace, name string, optional bool) error {
	if optional {
		return nil
	}
	return fmt.Errorf("%s %s not found", kind, key(namespace, name))
}
