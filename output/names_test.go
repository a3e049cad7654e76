package output

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestNamesReachNoTerminalRaw(t *testing.T) {
	f, err := ParseFormat("name")
	if err != nil {
		t.Fatal(err)
	}
	list := &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{
		{Id: "1", Metadata: &runtimeapi.PodSandboxMetadata{Name: "a\x1b[31m\nb", Namespace: "shop"}},
		{Id: "2", Metadata: &runtimeapi.PodSandboxMetadata{Name: "日本", Namespace: "shop"}},
	}}
	var out strings.Builder
	if err := Pods(&out, list, Options{Format: f}); err != nil {
		t.Fatal(err)
	}
	if want := `shop/a\x1b[31m\x0ab` + "\nshop/日本\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// Older runtimes, such as containerd 1.6, report no handlers and features. crictl then prints neither.
func TestInfoOfAnOldRuntime(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := Info(&out, &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{}}, Options{}); err != nil || strings.Contains(out.String(), "null") {
		t.Errorf("got %s, %v", out.String(), err)
	}
}
