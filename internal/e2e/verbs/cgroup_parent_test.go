package verbs

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// TestCgroupParentOnContainerd: with the systemd driver containerd starts only pods in a slice, so pods and containers
// have one, also if their configuration does not name it.
func TestCgroupParentOnContainerd(t *testing.T) {
	t.Parallel()
	const systemd = `{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"options":{"SystemdCgroup":true}},"other":{"options":{"SystemdCgroup":false}}}}}`
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"run":             {[]string{"run", "-d", "--name", "one", "busybox:1"}, "system.slice"},
		"configurations":  {[]string{"run", "container.json", "pod.json"}, "system.slice"},
		"with a parent":   {[]string{"run", "container.json", "kubelets.json"}, "/kubepods.slice"},
		"apply":           {[]string{"apply", "-f", "pod.yaml"}, "system.slice"},
		"another handler": {[]string{"run", "-r", "other", "container.json", "pod.json"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := withStub(t, stubcri.Options{Name: "containerd", Info: map[string]string{"config": systemd}})
			c.stub.AddImage("busybox:1")
			for file, text := range map[string]string{
				"container.json": `{"metadata":{"name":"app"},"image":{"image":"busybox:1"}}`,
				"pod.json":       `{"metadata":{"name":"one","namespace":"default","uid":"u"}}`,
				"kubelets.json":  `{"metadata":{"name":"one","namespace":"default","uid":"u"},"linux":{"cgroup_parent":"/kubepods.slice"}}`,
				"pod.yaml":       "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec: {containers: [{name: app, image: 'busybox:1'}]}",
			} {
				path := c.file(file, text)
				for i, arg := range tc.args {
					if arg == file {
						tc.args[i] = path
					}
				}
			}
			if got := c.run(tc.args...); got.code != 0 {
				t.Fatalf("got %+v", got)
			}
			seen := 0
			for _, call := range c.stub.Calls() {
				var config *runtimeapi.PodSandboxConfig
				switch r := call.Request.(type) {
				case *runtimeapi.RunPodSandboxRequest:
					config = r.GetConfig()
				case *runtimeapi.CreateContainerRequest:
					config = r.GetSandboxConfig()
				default:
					continue
				}
				seen++
				if got := config.GetLinux().GetCgroupParent(); got != tc.want {
					t.Errorf("%s: got %q, want %q", call.Method, got, tc.want)
				}
			}
			if seen != 2 {
				t.Errorf("got %d requests with a pod's configuration", seen)
			}
		})
	}
}
