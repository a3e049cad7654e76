package corev1

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	k8score "k8s.io/api/core/v1"
	k8snode "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestSameAsKubernetes compares every field, and its JSON name, with the types
// that these were made from.
func TestSameAsKubernetes(t *testing.T) {
	c := comparison{t: t, seen: map[reflect.Type]bool{}}
	c.same("Pod", reflect.TypeFor[Pod](), reflect.TypeFor[k8score.Pod]())
	c.same("ConfigMap", reflect.TypeFor[ConfigMap](), reflect.TypeFor[k8score.ConfigMap]())
	c.same("Secret", reflect.TypeFor[Secret](), reflect.TypeFor[k8score.Secret]())
	c.same("RuntimeClass", reflect.TypeFor[RuntimeClass](), reflect.TypeFor[k8snode.RuntimeClass]())
	if len(c.seen) < 100 {
		t.Errorf("compared %d types only", len(c.seen))
	}
}

type comparison struct {
	t    *testing.T
	seen map[reflect.Type]bool
}

// same compares two types down to what both packages share.
func (c comparison) same(path string, ours, theirs reflect.Type) {
	c.t.Helper()
	if ours == theirs || c.seen[ours] {
		return
	}
	c.seen[ours] = true
	if ours.Kind() != theirs.Kind() || ours.Name() != theirs.Name() {
		c.t.Errorf("%s: got %s, want %s: run hack/generate.sh", path, ours, theirs)
		return
	}
	switch ours.Kind() {
	case reflect.Pointer, reflect.Slice:
		c.same(path, ours.Elem(), theirs.Elem())
	case reflect.Map:
		c.same(path+" key", ours.Key(), theirs.Key())
		c.same(path, ours.Elem(), theirs.Elem())
	case reflect.Struct:
		if ours.NumField() != theirs.NumField() {
			c.t.Errorf("%s: %d fields, want %d: run hack/generate.sh", path, ours.NumField(), theirs.NumField())
			return
		}
		for i := range ours.NumField() {
			o, k := ours.Field(i), theirs.Field(i)
			if o.Name != k.Name || o.Tag.Get("json") != k.Tag.Get("json") {
				if !handWritten(ours) {
					c.t.Errorf("%s.%s: got json %q, want %s %q", path, o.Name, o.Tag.Get("json"), k.Name, k.Tag.Get("json"))
				}
				continue
			}
			c.same(path+"."+o.Name, o.Type, k.Type)
		}
	}
}

// handWritten are the types with a JSON of their own.
func handWritten(t reflect.Type) bool {
	return t == reflect.TypeFor[IntOrString]() || t == reflect.TypeFor[FieldsV1]()
}

func TestValuesReadAsKubernetesDoes(t *testing.T) {
	document := `{"metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","managedFields":[{"fieldsV1":{"a":1}}]},
		"spec":{"containers":[{"name":"a","livenessProbe":{"httpGet":{"port":"web"}},"readinessProbe":{"tcpSocket":{"port":80}},"resources":{"limits":{"cpu":"500m"}}}]}}`
	var ours Pod
	var theirs k8score.Pod
	if err := json.Unmarshal([]byte(document), &ours); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(document), &theirs); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(ours)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(theirs)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if !ours.CreationTimestamp.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("got %v", ours.CreationTimestamp)
	}
	for _, bad := range []string{`{"metadata":{"creationTimestamp":"yesterday"}}`, `{"spec":{"containers":[{"readinessProbe":{"tcpSocket":{"port":true}}}]}}`} {
		if err := json.Unmarshal([]byte(bad), &ours); err == nil {
			t.Errorf("%s: got no error", bad)
		}
	}
}

func TestDeepCopySharesNothing(t *testing.T) {
	yes := true
	pod := &Pod{}
	pod.Name, pod.Labels = "a", map[string]string{"k": "v"}
	pod.CreationTimestamp = NewTime(time.Unix(1, 0))
	pod.Spec.Containers = []Container{{
		Name: "c", SecurityContext: &SecurityContext{Privileged: &yes},
		Resources: ResourceRequirements{Limits: ResourceList{ResourceCPU: resource.MustParse("500m")}},
	}}
	got := pod.DeepCopy()
	if !reflect.DeepEqual(got, pod) {
		t.Fatalf("got %+v, want %+v", got, pod)
	}
	got.Labels["k"] = "changed"
	*got.Spec.Containers[0].SecurityContext.Privileged = false
	got.Spec.Containers[0].Resources.Limits[ResourceCPU] = resource.MustParse("1")
	if pod.Labels["k"] != "v" || !yes || pod.Spec.Containers[0].Resources.Limits.Cpu().String() != "500m" {
		t.Errorf("a change of the copy reached the original: %+v", pod)
	}
	if (*SecurityContext)(nil).DeepCopy() != nil {
		t.Error("a copy of nothing is something")
	}
}
