package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

const minimal = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    image: busybox
`

func parse(text string) (*Set, error) { return read(Options{}, text) }

func read(o Options, text string) (*Set, error) { return Read(o, strings.NewReader(text), "-") }

func TestParseDefaults(t *testing.T) {
	t.Parallel()
	set, err := parse(minimal + `
    resources: {limits: {memory: 64Mi}}
    ports: [{containerPort: 80}]
    livenessProbe: {httpGet: {port: 80}}
`)
	if err != nil {
		t.Fatal(err)
	}
	pod := set.Pods[0]
	c := pod.Spec.Containers[0]
	got := []any{
		pod.Namespace, pod.Spec.RestartPolicy, pod.Spec.DNSPolicy, *pod.Spec.TerminationGracePeriodSeconds,
		c.ImagePullPolicy, c.TerminationMessagePath, c.TerminationMessagePolicy, c.Ports[0].Protocol,
		c.Resources.Requests.Memory().String(), c.LivenessProbe.PeriodSeconds, c.LivenessProbe.HTTPGet.Path, c.LivenessProbe.HTTPGet.Scheme,
	}
	want := []any{
		"default", v1.RestartPolicyAlways, v1.DNSClusterFirst, int64(30),
		v1.PullAlways, "/dev/termination-log", v1.TerminationMessageReadFile, v1.ProtocolTCP,
		"64Mi", int32(10), "/", v1.URISchemeHTTP,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestPodResourcesDefaults: as with an API server, a pod requests what its containers request at the same time, or else its
// limit.
func TestPodResourcesDefaults(t *testing.T) {
	t.Parallel()
	const two = "{name: a, image: busybox, resources: {requests: {cpu: 100m, memory: 10Mi}}}, {name: b, image: busybox, resources: {limits: {cpu: 200m}}}"
	for _, c := range []struct{ resources, init, containers, want string }{
		{"{limits: {cpu: 1}}", "", two, "cpu 300m memory 10Mi"},
		{"{limits: {memory: 1Gi}}", "", two, "cpu 300m memory 10Mi"},
		{"{requests: {memory: 20Mi}}", "", two, "cpu 300m memory 20Mi"},
		{"{limits: {cpu: 1}}", "", "{name: a, image: busybox}", "cpu 1 memory 0"},
		{"{limits: {cpu: 1}}", "{name: i, image: busybox, resources: {requests: {cpu: 250m}}}", two, "cpu 300m memory 10Mi"},
		{"{limits: {cpu: 1}}", "{name: i, image: busybox, resources: {requests: {cpu: 700m}}}", two, "cpu 700m memory 10Mi"},
		{"{limits: {cpu: 1}}", "{name: s, image: busybox, restartPolicy: Always, resources: {requests: {cpu: 50m}}}", two, "cpu 350m memory 10Mi"},
		{
			"{limits: {cpu: 1}}",
			"{name: s, image: busybox, restartPolicy: Always, resources: {requests: {cpu: 50m}}}, {name: i, image: busybox, resources: {requests: {cpu: 700m}}}", two,
			"cpu 750m memory 10Mi",
		},
		{"{}", "", two, "none"},
		{"{limits: {}}", "", two, "none"},
	} {
		set, err := parse(fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {resources: %s, initContainers: [%s], containers: [%s]}}", c.resources, c.init, c.containers))
		if err != nil {
			t.Fatal(err)
		}
		got := "none"
		if r := set.Pods[0].Spec.Resources; r != nil {
			got = fmt.Sprint("cpu ", r.Requests.Cpu(), " memory ", r.Requests.Memory())
		}
		if got != c.want {
			t.Errorf("%s, init containers %s: got %s, want %s", c.resources, c.init, got, c.want)
		}
	}
}

func TestDefaultPullPolicy(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]v1.PullPolicy{
		"busybox":                  v1.PullAlways,
		"busybox:latest":           v1.PullAlways,
		"busybox:1":                v1.PullIfNotPresent,
		"localhost:5000/x/busybox": v1.PullAlways,
		"busybox@sha256:" + strings.Repeat("a", 64):        v1.PullIfNotPresent,
		"busybox:latest@sha256:" + strings.Repeat("a", 64): v1.PullAlways,
		"Not An Image": v1.PullIfNotPresent,
	} {
		if got := defaultPullPolicy(image); got != want {
			t.Errorf("%s: got %s, want %s", image, got, want)
		}
	}
}

// TestDocumentEnds: the end of a document is found in any spelling, and in linear time.
func TestDocumentEnds(t *testing.T) {
	t.Parallel()
	const one, two = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: one}\n", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: two}\n"
	for name, c := range map[string]struct {
		input string
		want  int // objects, -1: refused
	}{
		"indented":              {"  kind: ConfigMap\n  apiVersion: v1\n  metadata: {name: one}\n...\n", 1},
		"a directive":           {one + "...\n%YAML 1.1\n---\n" + two, 2},
		"many ends":             {one + strings.Repeat("...\n", 1<<18), 1},
		"text after many ends":  {one + strings.Repeat("...\n", 1<<18) + "x: y\n", -1},
		"content on the line":   {one + "--- {kind: ConfigMap}\n", -1},
		"a carriage return":     {strings.ReplaceAll(one, "\n", "\r") + "--- {kind: ConfigMap}\n", -1},
		"a break in a comment":  {one + "...\n# c\r--- {kind: ConfigMap}\n", -1},
		"a line separator":      {one + "...\n# c\u2028--- {kind: ConfigMap}\n", -1},
		"a next line":           {one + "x: y\u0085--- {kind: ConfigMap}\n", -1},
		"text in a block":       {one + "data:\n  a: |\n    ---\n    ...\n    text\n", 1},
		"a comment at the end":  {one + "... # done\n# really\n", 1},
		"ends of Windows lines": {strings.ReplaceAll(one+"---\n"+two+"...\n", "\n", "\r\n"), 2},
	} {
		set, err := parse(c.input)
		if (err != nil) != (c.want < 0) || err == nil && len(set.ConfigMaps) != c.want {
			t.Errorf("%s: got %v, want %d objects", name, err, c.want)
		}
	}
}

func TestParseDocumentsAndLists(t *testing.T) {
	t.Parallel()
	set, err := parse(`# a comment before the first separator
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: conf}, data: {a: "1"}}
- {apiVersion: v1, kind: Secret, metadata: {name: key}, data: {b: Mg==}, stringData: {c: three}}
---

---
{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "web", "namespace": "team"},
  "spec": {"containers": [{"name": "main", "image": "busybox:1"}]}, "status": {"phase": "Running"}}]}
--- # the last
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: gvisor}
handler: runsc
`)
	if err != nil {
		t.Fatal(err)
	}
	if got := set.Pods[0].Namespace + "/" + set.Pods[0].Name; got != "team/web" {
		t.Errorf("pod: got %s", got)
	}
	if src := set.Pods[0].Source; src.Document != 3 || src.Path != "items[0]" {
		t.Errorf("source: got %+v", src)
	}
	if set.Pods[0].Status.Phase != "" {
		t.Error("the status of another cluster was kept")
	}
	if set.ConfigMaps["default/conf"].Data["a"] != "1" || set.RuntimeClasses["gvisor"].Handler != "runsc" {
		t.Error("the config map or the runtime class is missing")
	}
	want := map[string][]byte{"b": []byte("2"), "c": []byte("three")}
	if diff := cmp.Diff(want, set.Secrets["default/key"].Data); diff != "" {
		t.Error(diff)
	}
}

// TestParseProblems compares the complete messages for common mistakes.
func TestParseProblems(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, in, want string }{
		{"other kind", "apiVersion: v1\nkind: Node\n", "standard input: document 1: kind: Node is not supported; crishim runs Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job and CronJob documents"},
		{"no kind", "a: 1", "standard input: document 1: kind: required"},
		{"no object", "just text", "standard input: document 1: is not an object with apiVersion and kind"},
		{"other version", "apiVersion: v2\nkind: Pod", `standard input: document 1: apiVersion: invalid "v2": must be "v1" for a Pod`},
		{"unknown field", minimal + "    imagePullPolcy: Never\n", `standard input: document 1: spec.containers[0].imagePullPolcy: unknown field (did you mean "imagePullPolicy"?)`},
		{"wrong case", minimal + "    workingdir: /\n", `standard input: document 1: spec.containers[0].workingdir: unknown field (did you mean "workingDir"?)`},
		{"wrong type", minimal + "    env: [{name: A, value: 5}]\n", `standard input: document 1: spec.containers[0].env[0].value: invalid number 5: must be a string (put it in quotes)`},
		{"object for list", minimal + "    args: {a: b}\n", `standard input: document 1: spec.containers[0].args: invalid object: must be a list`},
		{"fraction", minimal + "    ports: [{containerPort: 8.5}]\n", `standard input: document 1: spec.containers[0].ports[0].containerPort: invalid number 8.5: must be a whole number`},
		{"bad quantity", minimal + "    resources: {limits: {memory: 5 apples}}\n", `standard input: document 1: spec.containers[0].resources.limits[memory]: invalid "5 apples": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`},
		{"second document", minimal + "---\n" + strings.Replace(minimal, "spec:", "specs:", 1), `standard input: document 2: specs: unknown field (did you mean "spec"?)`},
		{"twice", minimal + "---\n" + minimal, "standard input: document 2: metadata.name: Pod default/web is already defined in standard input, document 1"},
		{"duplicate key", "kind: Pod\nkind: Pod\n", `standard input: document 1: not valid YAML: line 2: key "kind" already set in map`},
		{"bad base64", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: '%'}", "standard input: document 1: data[a]: is not base64"},
		{"list item", "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Node}]", "standard input: document 1: items[0].kind: Node is not supported; crishim runs Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job and CronJob documents"},
		{"bad image", strings.Replace(minimal, "busybox", "BusyBox:a:b", 1), `standard input: document 1: spec.containers[0].image: Invalid value: "BusyBox:a:b": must be an image reference: invalid reference format: repository name (library/BusyBox) must be lowercase`},
		{"duplicate name", minimal + "  - {name: main, image: busybox}\n", `standard input: document 1: spec.containers[1].name: Duplicate value: "main"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(c.in)
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(c.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestObjectsOneAfterTheOther: consecutive objects, as jq -c writes them, are all read. Text after an object is an
// error.
func TestObjectsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	one := func(name string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"c","image":"busybox"}]}}`
	}
	for _, text := range []string{one("a") + "\n" + one("b") + "\n", one("a") + one("b"), one("a") + "\n---\n" + one("b") + "\n# the end\n"} {
		if set, err := parse(text); err != nil || len(set.Pods) != 2 {
			t.Errorf("%s: got %+v, %v", text, set, err)
		}
	}
	for _, rest := range []string{"and some rubbish", one("b")[:60], "[]", "1", `{kind: Pod}`, "- a"} {
		if _, err := parse(one("a") + "\n" + rest); err == nil || !strings.Contains(err.Error(), "document 1: not valid JSON: after object 1") {
			t.Errorf("%q: got %v", rest, err)
		}
	}
	const flow = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: busybox}]}}"
	if _, err := parse(flow + " # the end\n"); err != nil {
		t.Error(err)
	}
	for _, rest := range []string{"rubbish", flow, "{}"} {
		if _, err := parse(flow + "\n" + rest); err == nil {
			t.Errorf("%q behind YAML in braces is accepted", rest)
		}
	}
}

// TestMergeKeys: a key may override a merged key. Two equal keys are an error.
func TestMergeKeys(t *testing.T) {
	t.Parallel()
	const text = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - &base {name: a, image: busybox, tty: yes, command: [sh, -c, "cat <<EOF"]}
  - <<: *base
    name: b
  - name: c
    <<: [*base]
    tty: no
`
	set, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, c := range set.Pods[0].Spec.Containers {
		got += fmt.Sprintln(c.Name, c.Image, c.TTY, len(c.Command))
	}
	if want := "a busybox true 3\nb busybox true 3\nc busybox false 3\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := parse(text + "    tty: yes\n"); err == nil || !strings.Contains(err.Error(), `key "tty" already set in map`) {
		t.Errorf("a duplicate: got %v", err)
	}
	if _, err := parse("a: &a {b: c}\nd: {<<: e}\n"); err == nil {
		t.Error("merged a text")
	}
}

// TestBudgets: documents, lists and aliases in an input of a few MiB cannot use much more memory than the input.
func TestBudgets(t *testing.T) {
	t.Parallel()
	bomb := "a0: &a0 {k: " + strings.Repeat("x", 1024) + "}\n"
	merges := bomb
	for i := range 40 {
		bomb += fmt.Sprintf("a%d: &a%[1]d [*a%d, *a%[2]d]\n", i+1, i)
		merges += fmt.Sprintf("a%d: &a%[1]d {x: {<<: *a%d}, y: {<<: *a%[2]d}}\n", i+1, i)
	}
	const size, objects = "more than 16 MiB of manifests, with their aliases expanded", "more than 10000 objects"
	for name, c := range map[string]struct{ text, want string }{
		"documents":     {strings.Repeat("---\na\n", 20_000), objects},
		"JSON objects":  {strings.Repeat("{}", 20_000), objects},
		"items":         {"{apiVersion: v1, kind: List, items: [" + strings.Repeat("{},", 20_000) + "]}", objects},
		"a long text":   {"a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 1000) + "]\n", size},
		"aliases":       {bomb, size},
		"merges":        {merges, size},
		"a cycle":       {"a: &a [*a]\n", "contains itself"},
		"a merge cycle": {"a: &a {x: {<<: *a}}\n", "contains itself"},
		"one file":      {minimal + strings.Repeat("#\n", 8<<20), "must not have more than 16 MiB"},
	} {
		_, err := parse(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 2<<20 {
			t.Errorf("%s: got %.200v", name, err)
		}
	}
	_, err := Parse(Options{}, File{"a.yaml", []byte(minimal)}, File{"b.yaml", []byte("#" + strings.Repeat(" ", MaxSize-1))})
	if want := "b.yaml: " + size; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestNamesThatAreTooLong: a name must fit into the name of the pod's log directory.
func TestNamesThatAreTooLong(t *testing.T) {
	t.Parallel()
	named := func(n int) error {
		_, err := parse(strings.Replace(minimal, "web", strings.Repeat("a", n), 1))
		return err
	}
	most := 255 - len("default__") - 36
	if err := named(most); err != nil {
		t.Error(err)
	}
	if err := named(most + 5); err == nil || !strings.Contains(err.Error(), "must be shorter by 5 characters") {
		t.Errorf("got %v", err)
	}
	_, err := parse(strings.Replace(minimal, "name: web", "name: web, annotations: {a: "+strings.Repeat("b", maxAnnotations)+"}", 1))
	if err == nil || !strings.Contains(err.Error(), "metadata.annotations: Too long: may not be more than 262144 bytes") {
		t.Errorf("got %.200v", err)
	}
}

func TestParseReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := parse("apiVersion: v1\nkind: Pod\nmetadata: {name: A_B}\nspec: {nodeSelector: {a: b}, containers: []}\n---\nkind: Node\n")
	want := []string{"document 2: kind: Node", "document 1: metadata.name", "document 1: spec.nodeSelector[a]: Invalid value: \"b\": this node has no such label", "document 1: spec.containers: Required"}
	for _, text := range want {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q in it", err, text)
		}
	}
}

// TestProblemsComeInOneOrder: problems are listed in the order of the input. Keys of maps are sorted.
func TestProblemsComeInOneOrder(t *testing.T) {
	t.Parallel()
	const text = `{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {a b: c, d e: f}}, spec: {
		initContainers: [{name: i, image: "b:1", livenessProbe: {exec: {command: [a]}, periodSeconds: -1, timeoutSeconds: -1}, readinessProbe: {exec: {command: [a]}}, lifecycle: {}}],
		containers: [{name: c, image: "b:1", resources: {limits: {a.b/x: -1, a.b/y: -1}}}],
		ephemeralContainers: [{name: e, image: "b:1", ports: [{containerPort: 1}], resources: {limits: {cpu: 1}}}],
		volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: a}, podCertificate: {}, clusterTrustBundle: {path: b}}]}}]}}
---
{apiVersion: v1, kind: Secret, metadata: {name: A}}
`
	_, err := parse(text)
	if err == nil || len(strings.Split(err.Error(), "\n")) < 15 {
		t.Fatalf("got %v", err)
	}
	for range 20 {
		if _, again := parse(text); again.Error() != err.Error() {
			t.Fatalf("got\n%v\nand\n%v", err, again)
		}
	}
}

func TestReadDirectoryAndStdin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml":    minimal,
		"a.json":    `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`,
		".b.yaml~":  "not yaml: [",
		"README.md": "nothing",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := strings.NewReader(strings.Replace(minimal, "web", "stdin", 1))
	set, err := Read(Options{}, in, dir, "-")
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Pods) != 2 || set.Pods[1].Name != "stdin" || len(set.ConfigMaps) != 1 {
		t.Errorf("got %d pods, %d config maps", len(set.Pods), len(set.ConfigMaps))
	}
	if _, err := Read(Options{}, in, filepath.Join(dir, "none.yaml")); err == nil {
		t.Error("a missing file was read")
	}
	if _, err := Read(Options{}, in, filepath.Join(dir, "README.md")); err == nil || err.Error() != filepath.Join(dir, "README.md")+": document 1: is not an object with apiVersion and kind" {
		t.Errorf("got %v", err)
	}
}
