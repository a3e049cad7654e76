package verbs

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test/stubcri"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// A copy is a pod of its own.
func TestDebugCopyNeedsANameOfItsOwn(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "shop")
	c.stub.AddContainer(pod, "till")
	c.stub.AddPod("other", "free")
	for name, refused := range map[string]bool{"shop": true, "free": false} {
		got := c.run("debug", "--copy-to", name, "shop/till", "true")
		if said := strings.Contains(got.err, `there is a pod "default/`+name+`" already`); said != refused || refused && got.code != 125 {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if slices.Contains(c.stub.Methods(), "CreateContainer") {
		t.Error("a container was created")
	}
}

// TestDebugCopyIsNoPodOfSync: sync would remove the copy for want of a manifest, and a kubelet for want of a pod.
func TestDebugCopyIsNoPodOfSync(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{Change: func(answer proto.Message) {
		if r, ok := answer.(*runtimeapi.ContainerStatusResponse); ok && r.Info != nil {
			r.Info["info"] = `{"config":{"metadata":{"name":"till"},"image":{"image":"busybox"}}}`
		}
	}})
	marks := map[string]string{pod.DirAnnotation: "/pods", pod.FileAnnotation: "shop.yaml", kube.AnnotationRun: "x", "io.kubernetes.pod.name": "shop", "example.com/team": "a"}
	shop := c.stub.AddPod("default", "shop", func(p *runtimeapi.PodSandboxConfig) { p.Labels, p.Annotations = marks, marks })
	c.stub.AddContainer(shop, "till")
	c.stub.Fail("CreateContainer", status.Error(codes.Internal, "no"))
	r := c.run("debug", "--copy-to", "copy", "shop/till", "true")
	made := false
	for _, call := range c.stub.Calls() {
		if request, ok := call.Request.(*runtimeapi.RunPodSandboxRequest); ok {
			made = true
			want := map[string]string{"example.com/team": "a"}
			if got := request.GetConfig(); !maps.Equal(got.GetLabels(), want) || !maps.Equal(got.GetAnnotations(), want) {
				t.Errorf("got labels %v, annotations %v", got.GetLabels(), got.GetAnnotations())
			}
		}
	}
	if !made {
		t.Errorf("no pod was made: %+v", r)
	}
}

// A copy has what its container has.
func TestDebugCopyTakesNoProfile(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	if r := c.run("debug", "--copy-to", "x", "--profile", "net", "web"); r.code != 125 || !strings.Contains(r.err, "a copy has the security and the environment of its container") {
		t.Errorf("got %+v", r)
	}
}
