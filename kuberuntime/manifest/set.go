package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/internal/shellwords"
)

// Source is the place of an object in the input.
type Source struct {
	File     string // "-" for standard input
	Document int    // from 1, including empty documents
	Path     string // items[3] inside a List, spec.template for the pod of a workload
}

type Pod struct {
	*v1.Pod
	Source   Source
	Workload *Workload // owner of the pod's template; nil for a Pod
}

// Set holds the objects of an input. The keys of ConfigMaps and Secrets are "namespace/name".
type Set struct {
	Pods           []Pod
	ConfigMaps     map[string]*v1.ConfigMap
	Secrets        map[string]*v1.Secret
	RuntimeClasses map[string]*RuntimeClass
	Warnings       []string // messages to the user, such as parts of the input that have no effect here

	options  Options
	claims   map[string]bool // claims that the input defines, also by volumeClaimTemplates; the keys are "namespace/name"
	noSecret []string        // pull secrets that are not in the input
}

// add reads a file. If the total size of the input exceeds MaxSize, it skips the file. It stops at the object that
// exceeds maxObjects. Both are problems of the input.
func (p *parser) add(file string, data []byte) {
	if err := p.size.Take(int64(len(data))); err != nil {
		p.problem(Source{File: file}, "", err.Error())
		return
	}
	for _, doc := range split(data) {
		src := Source{File: file, Document: doc.number}
		objects, err := doc.splitJSON(int(p.objects.Left) + 1)
		if err != nil {
			p.problem(src, "", "not valid JSON: "+err.Error())
		}
		for _, object := range objects {
			if err := p.objects.Take(1); err != nil {
				p.problem(src, "", err.Error())
				return
			}
			if value, err := p.decodeDocument(object.data); err != nil {
				p.problem(src, "", yamlProblem(err, doc.line))
			} else {
				p.addValue(src, value)
			}
		}
	}
}

var mergeKey = lazyregexp.New(`(?m)(^|[\s{,])<<\s*:`)

// decodeDocument decodes YAML or JSON into maps, lists and scalars. Numbers stay exact.
func (p *parser) decodeDocument(data []byte) (any, error) {
	original, hasMerges := data, mergeKey.MatchString(string(data))
	if hasMerges || bytes.IndexByte(data, '&') >= 0 && bytes.IndexByte(data, '*') >= 0 && !json.Valid(data) {
		var root yamlv3.Node
		if err := yamlv3.Unmarshal(data, &root); err != nil {
			return nil, err
		}
		size, err := expandedSizes{}.of(&root)
		if err = cmp.Or(err, p.size.Take(size)); err != nil {
			return nil, err
		}
		if hasMerges {
			// Expand the merge keys first: the strict decoder refuses a key that overrides a merged key as a duplicate.
			if err = mergeNode(&root, map[*yamlv3.Node]bool{}); err == nil {
				data, err = yamlv3.Marshal(&root)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	if err := checkEnd(original); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	err = dec.Decode(&v)
	return v, err
}

// expandedSizes holds the size of each node after alias expansion: its bytes of text, plus one per node.
type expandedSizes map[*yamlv3.Node]int64

func (s expandedSizes) of(n *yamlv3.Node) (int64, error) {
	const inProgress = -1
	if size, known := s[n]; known {
		if size == inProgress {
			return 0, fmt.Errorf("line %d: anchor %q contains itself", n.Line, n.Anchor)
		}
		return size, nil
	}
	s[n] = inProgress
	size, content := int64(len(n.Value))+1, n.Content
	if n.Alias != nil {
		content = []*yamlv3.Node{n.Alias}
	}
	for _, child := range content {
		one, err := s.of(child)
		if err != nil {
			return 0, err
		}
		size = min(size+one, MaxSize+1)
	}
	s[n] = size
	return size, nil
}

// markers begin lines that may start or end a YAML document without being a separator of split.
var markers = lazyregexp.New(`(?m)(^|[\r\x{85}\x{2028}\x{2029}])(---|\.\.\.)`)

// checkEnd refuses text after the first object of a document, because the decoder ignores it. Text can follow an object
// in braces, a "---" with content on its line, or "...".
func checkEnd(data []byte) error {
	end, at := len(data), 0 // end is the first "..." after which nothing but comments and directives follow
	for line := range bytes.Lines(data) {
		switch {
		case !isBlank(line):
			end = len(data)
		case end == len(data) && line[0] == '.':
			end = at
		}
		at += len(line)
	}
	data = data[:end]
	head := bytes.TrimSpace(data)
	inBraces := len(head) > 0 && head[0] == '{' && !json.Valid(head)
	if !inBraces && !markers.MatchString(string(data)) {
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

// mergeNode expands merge keys (<<). The own keys of a map win, then the first source that has a key.
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
	for _, from := range merged {
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

// yamlProblem removes the prefixes of the YAML library from an error. It appends the number of the line at which the
// document starts, because the library counts lines from the start of the document.
func yamlProblem(err error, firstLine int) string {
	text := strings.ReplaceAll(err.Error(), "error converting YAML to JSON: ", "")
	text = strings.ReplaceAll(text, "unmarshal errors:\n", "")
	text = strings.Join(strings.Fields(strings.TrimPrefix(text, "yaml: ")), " ")
	if firstLine > 1 {
		text += fmt.Sprintf(" (the document starts at line %d)", firstLine)
	}
	return "not valid YAML: " + text
}

func (p *parser) addValue(src Source, value any) {
	object, ok := value.(map[string]any)
	if !ok {
		p.problem(src, "", "is not an object with apiVersion and kind")
		return
	}
	kind, _ := object["kind"].(string)
	version, _ := object["apiVersion"].(string)
	wanted, known := kinds[kind]
	group, ofCluster := clusterKinds[kind]
	switch {
	case kind == "":
		p.problem(src, "kind", "required")
		p.problems[len(p.problems)-1].hint = kindHint(src.File, version, object)
	case ofCluster && strings.HasPrefix(version, group) && p.options.Strict:
		p.problem(src, "kind", kind+" needs an API server")
	case ofCluster && strings.HasPrefix(version, group):
		p.leftOut[kind]++
	case ofCluster:
		p.problem(src, "apiVersion", fmt.Sprintf("invalid %q: must begin with %q for a %s", version, group, kind))
	case kind == "Kustomization":
		p.problem(src, "kind", "a Kustomization is not applied by itself")
		p.problems[len(p.problems)-1].hint = fmt.Sprintf("`kubectl kustomize %s | crishim apply -f -`", shellwords.Quote(filepath.Dir(src.File)))
	case !known:
		p.problem(src, "kind", kind+" is not supported; crishim runs Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job and CronJob documents")
	case version != wanted:
		p.problem(src, "apiVersion", fmt.Sprintf("invalid %q: must be %q for a %s", version, wanted, kind))
	case strings.HasSuffix(kind, "List"):
		p.addList(src, object, strings.TrimSuffix(kind, "List"))
	default:
		p.addObject(src, kind, object)
	}
}

// kindHint returns a hint for an object without a kind, if the object is the Chart.yaml of a Helm chart or a CRI
// configuration.
func kindHint(file, version string, object map[string]any) string {
	if filepath.Base(file) == "Chart.yaml" {
		return fmt.Sprintf("this is a chart: `helm template %s | crishim apply -f -`", shellwords.Quote(filepath.Dir(file)))
	}
	if _, named := object["metadata"].(map[string]any); !named || version != "" {
		return ""
	}
	if _, image := object["image"].(map[string]any); image {
		return fmt.Sprintf("this is a container's configuration of the CRI: `crishim create POD %s`", shellwords.Quote(file))
	}
	return fmt.Sprintf("this is a pod's configuration of the CRI: `crishim runp %s`", shellwords.Quote(file))
}

var kinds = map[string]string{
	"Deployment": "apps/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1", "CronJob": "batch/v1",
	"Pod": "v1", "ConfigMap": "v1", "Secret": "v1", "PersistentVolumeClaim": "v1", "RuntimeClass": "node.k8s.io/v1",
	"List": "v1", "PodList": "v1", "ConfigMapList": "v1", "SecretList": "v1",
}

// clusterKinds are the kinds that need an API server, with the prefix of their API version.
var clusterKinds = map[string]string{
	"Namespace": "v1", "Service": "v1", "ServiceAccount": "v1", "Endpoints": "v1", "LimitRange": "v1", "ResourceQuota": "v1", "PersistentVolume": "v1",
	"Role": rbac, "RoleBinding": rbac, "ClusterRole": rbac, "ClusterRoleBinding": rbac,
	"Ingress": "networking.k8s.io/", "IngressClass": "networking.k8s.io/", "NetworkPolicy": "networking.k8s.io/",
	"PodDisruptionBudget": "policy/", "PodSecurityPolicy": "policy/", "HorizontalPodAutoscaler": "autoscaling/", "PriorityClass": "scheduling.k8s.io/",
	"StorageClass": "storage.k8s.io/", "CSIDriver": "storage.k8s.io/", "VolumeSnapshotClass": "snapshot.storage.k8s.io/",
	"EndpointSlice": "discovery.k8s.io/", "Lease": "coordination.k8s.io/", "FlowSchema": "flowcontrol.apiserver.k8s.io/", "PriorityLevelConfiguration": "flowcontrol.apiserver.k8s.io/",
	"CustomResourceDefinition": "apiextensions.k8s.io/", "APIService": "apiregistration.k8s.io/",
	"ValidatingWebhookConfiguration": admission, "MutatingWebhookConfiguration": admission,
	"ValidatingAdmissionPolicy": admission, "ValidatingAdmissionPolicyBinding": admission,
}

const (
	rbac      = "rbac.authorization.k8s.io/"
	admission = "admissionregistration.k8s.io/"
)

// addList adds the items of a List. Items of a typed list, such as a PodList, may omit their kind.
func (p *parser) addList(src Source, list map[string]any, kind string) {
	items, ok := list["items"].([]any)
	if !ok && list["items"] != nil {
		p.problem(src, "items", "must be a list")
		return
	}
	for _, key := range slices.Sorted(maps.Keys(list)) {
		if key != "items" && key != "kind" && key != "apiVersion" && key != "metadata" {
			p.problem(src, key, "unknown field")
		}
	}
	if err := p.objects.Take(int64(len(items))); err != nil {
		p.problem(src, "items", err.Error())
		return
	}
	for i, item := range items {
		if object, ok := item.(map[string]any); ok && kind != "" {
			if object["kind"] == nil {
				object["kind"] = kind
			}
			if object["apiVersion"] == nil {
				object["apiVersion"] = "v1"
			}
		}
		p.addValue(Source{src.File, src.Document, join(src.Path, fmt.Sprintf("items[%d]", i))}, item)
	}
}

// addObject adds a well-formed object that is the first of its kind and name. Like an API server, it also checks the
// names and keys of ConfigMaps and Secrets.
func (p *parser) addObject(src Source, kind string, object map[string]any) {
	switch kind {
	case "Pod":
		pod := &v1.Pod{}
		if !p.decode(src, kind, object, pod) {
			return
		}
		// The status and the deletion in a manifest come from a cluster and do not apply to this host.
		pod.Status = v1.PodStatus{}
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil
		p.Pods = append(p.Pods, Pod{Pod: pod, Source: src})
	case "ConfigMap":
		cm := &v1.ConfigMap{}
		if !p.decode(src, kind, object, cm) {
			return
		}
		p.ConfigMaps[key(cm.Namespace, cm.Name)] = cm
		p.checkText(src, "metadata.name", cm.Name, validation.IsDNS1123Subdomain)
		checkKeys(p, src, "data", cm.Data)
		checkKeys(p, src, "binaryData", cm.BinaryData)
		for _, key := range slices.Sorted(maps.Keys(cm.BinaryData)) {
			if _, twice := cm.Data[key]; twice {
				p.problem(src, "binaryData["+key+"]", "is in data already")
			}
		}
	case "Secret":
		secret := &v1.Secret{}
		if !p.decode(src, kind, object, secret) {
			return
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		for k, v := range secret.StringData { // stringData overrides data, as in an API server
			secret.Data[k] = []byte(v)
		}
		secret.StringData = nil
		p.Secrets[key(secret.Namespace, secret.Name)] = secret
		p.checkText(src, "metadata.name", secret.Name, validation.IsDNS1123Subdomain)
		checkKeys(p, src, "data", secret.Data)
		p.checkDockerConfig(src, secret)
	case "RuntimeClass":
		class := &RuntimeClass{}
		if !p.decode(src, kind, object, class) {
			return
		}
		p.RuntimeClasses[class.Name] = class
		p.checkText(src, "metadata.name", class.Name, validation.IsDNS1123Subdomain)
		p.checkText(src, "handler", class.Handler, validation.IsDNS1123Label)
	case "PersistentVolumeClaim":
		claim := &v1.PersistentVolumeClaim{}
		if p.decode(src, kind, object, claim) {
			p.claims[key(claim.Namespace, claim.Name)] = true
			p.checkText(src, "metadata.name", claim.Name, validation.IsDNS1123Subdomain)
			p.checkClaim(src, "spec", &claim.Spec)
		}
	default:
		p.addWorkload(src, kind, object)
	}
}

// checkText reports whether a text is set and valid, and records a problem if not.
func (p *parser) checkText(src Source, path, text string, check func(string) []string) bool {
	if text == "" {
		p.problem(src, path, "required")
		return false
	}
	problems := check(text)
	if len(problems) > 0 {
		p.problem(src, path, strings.Join(problems, "; "))
	}
	return len(problems) == 0
}

func checkKeys[V any](p *parser, src Source, path string, data map[string]V) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
			p.problem(src, path+"["+key+"]", strings.Join(problems, "; "))
		}
	}
}

// checkDockerConfig checks a pull secret. Its messages omit the content of the secret.
func (p *parser) checkDockerConfig(src Source, secret *v1.Secret) {
	wanted, ok := map[v1.SecretType]string{v1.SecretTypeDockerConfigJson: v1.DockerConfigJsonKey, v1.SecretTypeDockercfg: v1.DockerConfigKey}[secret.Type]
	data, found := secret.Data[wanted]
	switch {
	case ok && !found:
		p.problem(src, "data["+wanted+"]", "required for type "+string(secret.Type))
	case ok && !json.Valid(data):
		p.problem(src, "data["+wanted+"]", "is not JSON")
	}
}

// decode decodes an object into its Go type. It returns false and records a problem if the object is malformed, has only a
// generateName, or repeats the kind and name of an earlier object.
func (p *parser) decode(src Source, kind string, object map[string]any, into metav1.Object) bool {
	shape := checkShape("", object, reflect.TypeOf(into).Elem())
	for _, one := range shape {
		p.problem(src, one.path, one.text)
	}
	if len(shape) > 0 {
		return false
	}
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		p.problem(src, "", cleanDecodeError(err))
		return false
	}
	if into.GetName() == "" && into.GetGenerateName() != "" {
		p.problem(src, "metadata.generateName", "needs an API server")
		p.problems[len(p.problems)-1].hint = "give it a metadata.name, by which the next apply and delete find it"
		return false
	}
	if into.GetNamespace() == "" {
		into.SetNamespace("default")
	}
	return p.isFirst(src, kind, into)
}

func (p *parser) isFirst(src Source, kind string, into metav1.Object) bool {
	id := kind + " " + key(into.GetNamespace(), into.GetName())
	if first, twice := p.seen[id]; twice && into.GetName() != "" {
		p.problem(src, "metadata.name", fmt.Sprintf("%s is already defined in %s, document %d", id, fileName(first.File), first.Document))
		return false
	}
	p.seen[id] = src
	return true
}

func key(namespace, name string) string { return namespace + "/" + name }

// ConfigMap returns the data of a ConfigMap. With binary it includes binaryData, which only volumes can use. A missing
// optional ConfigMap is empty.
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

// Secret returns the data of a Secret. A missing optional Secret is empty.
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
