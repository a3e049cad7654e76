package verbs

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// An object may be removed between list and inspect. Inspect fails only if the user named it.
func TestInspectOfWhatIsGone(t *testing.T) {
	t.Parallel()
	gone := strings.Repeat("d", 64)
	c := withStub(t, stubcri.Options{Change: func(answer proto.Message) {
		switch m := answer.(type) {
		case *runtimeapi.ListContainersResponse:
			m.Containers = append(m.Containers, &runtimeapi.Container{
				Id: gone, PodSandboxId: gone, Metadata: &runtimeapi.ContainerMetadata{Name: "gone"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			})
		case *runtimeapi.ListPodSandboxResponse:
			m.Items = append(m.Items, &runtimeapi.PodSandbox{Id: gone, Metadata: &runtimeapi.PodSandboxMetadata{Name: "gone", Namespace: "default", Uid: gone}})
		case *runtimeapi.ListImagesResponse:
			m.Images = append(m.Images, &runtimeapi.Image{Id: "sha256:" + gone, RepoTags: []string{"gone:1"}})
		}
	}})
	c.stub.AddContainer(c.stub.AddPod("default", "web"), "main")
	c.stub.AddImage("here:1")
	for verb, named := range map[string]string{"inspect": gone, "inspectp": gone, "inspecti": "gone:1"} {
		if r := c.run(verb, "-o", "json"); r.code != 0 || r.err != "" || !strings.Contains(r.out, `"status"`) || strings.Contains(r.out, gone) {
			t.Errorf("%s of all: got %+v, want those that are there", verb, r)
		}
		if r := c.run(verb, named); r.code != 1 {
			t.Errorf("%s of one: got %+v, want a failure", verb, r)
		}
	}
}

// A kubelet and apply make containers from the id of an image: the table has its name, all else what the runtime says.
func TestPsNamesImages(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	id := c.stub.AddImage("shop.example/till:1")
	c.stub.AddContainer(c.stub.AddPod("default", "shop"), "till", func(config *runtimeapi.ContainerConfig) { config.Image.Image = id })
	for line, named := range map[string]bool{"ps": true, "ps -o wide": true, "ps -o json": false, "--compat=crictl ps": false, "ps -q": false} {
		if r := c.run(strings.Fields(line)...); r.code != 0 || strings.Contains(r.out, "shop.example/till:1") != named {
			t.Errorf("%s: got %+v", line, r)
		}
	}
}
