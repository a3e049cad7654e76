package manifest

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	nodev1 "k8s.io/api/node/v1"
)

// TestTypes compares the declared types with those of Kubernetes.
func TestTypes(t *testing.T) {
	t.Parallel()
	sameFields(t, "Job", reflect.TypeFor[batchJob](), reflect.TypeFor[batchv1.Job]())
	sameFields(t, "CronJob", reflect.TypeFor[cronJob](), reflect.TypeFor[batchv1.CronJob]())
	sameFields(t, "RuntimeClass", reflect.TypeFor[RuntimeClass](), reflect.TypeFor[nodev1.RuntimeClass]())
}

func sameFields(t *testing.T, path string, ours, theirs reflect.Type) {
	t.Helper()
	for ours.Kind() == reflect.Pointer {
		ours = ours.Elem()
	}
	for theirs.Kind() == reflect.Pointer {
		theirs = theirs.Elem()
	}
	if ours == theirs || ours == reflect.TypeFor[json.RawMessage]() {
		return
	}
	if ours.Kind() != theirs.Kind() {
		t.Errorf("%s is a %s, want %s", path, ours, theirs)
	}
	if ours.Kind() != reflect.Struct {
		return
	}
	our, their := jsonFields(ours), jsonFields(theirs)
	if a, b := slices.Sorted(maps.Keys(our)), slices.Sorted(maps.Keys(their)); !slices.Equal(a, b) {
		t.Errorf("%s has the fields %q, want %q", path, a, b)
		return
	}
	for name := range our {
		sameFields(t, path+"."+name, our[name], their[name])
	}
}
