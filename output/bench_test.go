package output

import (
	"fmt"
	"io"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	k8syaml "sigs.k8s.io/yaml"

	"github.com/crishim/crishim/internal/kube"
)

// thousand returns a list of the size of a full node.
func thousand() *runtimeapi.ListContainersResponse {
	r := &runtimeapi.ListContainersResponse{}
	for i := range 1000 {
		id := fmt.Sprintf("%064x", i)
		r.Containers = append(r.Containers, &runtimeapi.Container{
			Id: id, PodSandboxId: id, CreatedAt: int64(i + 1), Image: &runtimeapi.ImageSpec{Image: "registry.example/team/app:1.2.3"}, ImageId: "sha256:" + id, ImageRef: "sha256:" + id,
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"},
			Labels:   map[string]string{kube.LabelPodName: fmt.Sprint("pod-", i), kube.LabelPodNamespace: "default", kube.LabelContainerName: "app"},
		})
	}
	return r
}

func BenchmarkContainers(b *testing.B) {
	list := thousand()
	for _, name := range []string{"table", "json", "yaml"} {
		b.Run(name, func(b *testing.B) {
			f, err := ParseFormat(name)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := Containers(io.Discard, list, Options{Format: f, Now: now}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The output of sigs.k8s.io/yaml is the same, byte for byte.
func TestYAMLIsAsKubernetesWritesIt(t *testing.T) {
	t.Parallel()
	document := `{"b":[],"a":{},"n":null,"t":true,"big":18446744073709551615,"min":-9223372036854775808,"f":1.50,"e":1e3,"tiny":1e-9,"zero":0,
		"strings":["","yes","null","~","1","0x1f","1e3","2001-01-01","a: b","- a","#x","line\nline","tail ","\ttab","é","\u65e5本","\"","'","{","@x","!x","&x","*x","%x"],
		"10":1,"9":2,"key with space":3,"":4,"long":"` + strings.TrimSpace(strings.Repeat("words ", 40)) + `"}`
	want, err := k8syaml.JSONToYAML([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := renderDocument(&got, []byte(document), YAML, nil); err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}
