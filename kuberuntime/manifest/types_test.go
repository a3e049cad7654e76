package manifest

import (
	"encoding/json"
	"fmt"
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
	for _, diff := range slices.Concat(
		differences("Job", reflect.TypeFor[batchJob](), reflect.TypeFor[batchv1.Job]()),
		differences("CronJob", reflect.TypeFor[cronJob](), reflect.TypeFor[batchv1.CronJob]()),
		differences("RuntimeClass", reflect.TypeFor[RuntimeClass](), reflect.TypeFor[nodev1.RuntimeClass]()),
	) {
		t.Error(diff)
	}
}

// TestDifferences checks that the elements of slices and maps are compared.
func TestDifferences(t *testing.T) {
	t.Parallel()
	type ours struct {
		List []struct {
			Key int `json:"key"`
		} `json:"list"`
		Map map[string][]int `json:"map"`
	}
	type theirs struct {
		List []struct {
			Key string `json:"key"`
		} `json:"list"`
		Map map[string][]string `json:"map"`
	}
	want := []string{"x.list[].key is a int, want string", "x.map[][] is a int, want string"}
	if got := differences("x", reflect.TypeFor[ours](), reflect.TypeFor[theirs]()); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// differences describes how the JSON of two types differs.
func differences(path string, ours, theirs reflect.Type) (out []string) {
	for ours.Kind() == reflect.Pointer {
		ours = ours.Elem()
	}
	for theirs.Kind() == reflect.Pointer {
		theirs = theirs.Elem()
	}
	if ours == theirs || ours == reflect.TypeFor[json.RawMessage]() {
		return nil
	}
	if ours.Kind() != theirs.Kind() {
		return []string{fmt.Sprintf("%s is a %s, want %s", path, ours, theirs)}
	}
	switch ours.Kind() {
	case reflect.Slice, reflect.Map:
		return differences(path+"[]", ours.Elem(), theirs.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	our, their := jsonFields(ours), jsonFields(theirs)
	names := slices.Sorted(maps.Keys(our))
	if want := slices.Sorted(maps.Keys(their)); !slices.Equal(names, want) {
		return []string{fmt.Sprintf("%s has the fields %q, want %q", path, names, want)}
	}
	for _, name := range names {
		out = append(out, differences(path+"."+name, our[name], their[name])...)
	}
	return out
}
