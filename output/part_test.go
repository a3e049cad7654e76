package output

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func partsOf(t *testing.T, o Options, render func(p *Part, node int) error) (parts []*Part) {
	t.Helper()
	for i, name := range []string{"n1", "n2"} {
		p := &Part{Node: name}
		if err := render(p, i); err != nil {
			t.Fatal(err)
		}
		parts = append([]*Part{p}, parts...) // as if the user had named n2 first
	}
	return parts
}

func TestMerge(t *testing.T) {
	t.Parallel()
	lists := [][]*runtimeapi.Image{
		{{Id: "sha256:b", RepoTags: []string{"b:1"}, Size: 2000}},
		{{Id: "sha256:a", RepoTags: []string{"a:1"}, Size: 1000}, {Id: "sha256:c", RepoTags: []string{"c:1\x1b[1m"}, Size: 3000}},
	}
	for _, c := range []struct {
		format, sort, columns string
		quiet                 bool
		want                  string
	}{
		{"", "", "", false, "NODE IMAGE TAG IMAGE ID SIZE n1 b 1 b 2kB n2 a 1 a 1kB n2 c 1\\x1b[1m c 3kB"},
		{"", "-size", "tag,node", false, "TAG NODE 1\\x1b[1m n2 1 n1 1 n2"},
		{"", "node", "node", false, "NODE n1 n2 n2"},
		{"", "", "", true, "sha256:b sha256:a sha256:c"},
		{"jsonpath={.images[*].node}", "", "", false, "n1 n2 n2"},
		{"go-template={{range .images}}{{.node}}{{.id}} {{end}}", "", "", false, "n1sha256:b n2sha256:a n2sha256:c"},
	} {
		format, err := ParseFormat(c.format)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Format: format, Sort: c.sort, Quiet: c.quiet, Nodes: true}
		if c.columns != "" {
			o.Columns = strings.Split(c.columns, ",")
		}
		parts := partsOf(t, o, func(p *Part, i int) error {
			return Images(p, &runtimeapi.ListImagesResponse{Images: lists[i]}, o.WithoutNode())
		})
		var b strings.Builder
		if err := Merge(&b, parts, o); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if got := strings.Join(strings.Fields(b.String()), " "); got != c.want {
			t.Errorf("%q sorted by %q: got\n%s\nwant\n%s", c.format, c.sort, got, c.want)
		}
	}
}

// The runtime chooses the keys of the info map. A key "node" must not replace the node's name.
func TestAnElementWithANode(t *testing.T) {
	t.Parallel()
	status := []*runtimeapi.ContainerStatusResponse{{Status: &runtimeapi.ContainerStatus{Id: "1"}, Info: map[string]string{"node": "another"}}}
	if err := InspectContainers(&Part{Node: "n1"}, status, Options{Nodes: true}); err == nil {
		t.Error("another node's name was taken")
	}
	status[0].Info = map[string]string{"info": `{"node": "inside"}`}
	if err := InspectContainers(&Part{Node: "n1"}, status, Options{Nodes: true}); err != nil {
		t.Error(err)
	}
}
