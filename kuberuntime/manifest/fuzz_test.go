package manifest

import "testing"

// FuzzParse: Parse never panics. It returns a Set or an error.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: b, image: c}]}\n",
		"{\"kind\": \"List\", \"items\": [{}]}", "---\n---\n", "a: &a [*a]", "kind: Pod\nspec: {volumes: [{name: v, hostPath: {path: ..}}]}",
		"apiVersion: v1\nkind: Pod\nspec: {containers: [{resources: {limits: {cpu: 1e99}}, ports: [{containerPort: -1}], env: [{value: $(A)}]}]}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := parse(text)
		if err == nil && set == nil {
			t.Error("neither a set nor an error")
		}
	})
}
