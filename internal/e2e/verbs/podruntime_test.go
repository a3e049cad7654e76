package verbs

import (
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// TestPodsOfOtherToolsOnEveryRuntime has pods whose containers have no labels, on runtimes
// that label the sandboxes themselves, that do not, and that ignore filters: each pod's
// containers are found, and no other's.
func TestPodsOfOtherToolsOnEveryRuntime(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"CRI-O", "containerd 1.7", "ignores filters"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := stubcri.Profiles()[name]
			c := withStub(t, o)
			web := c.stub.AddContainer(c.stub.AddPod("default", "web"), "main")
			other := c.stub.AddPod("default", "other")
			left := c.stub.AddContainer(other, "left")
			c.stub.Exit(c.stub.AddContainer(other, "old", func(c *runtimeapi.ContainerConfig) { c.Metadata.Attempt = 1 }), 1)
			if got := c.run("describe", "web"); got.code != 0 || !strings.Contains(got.out, "Container main:") || strings.Contains(got.out, "left") {
				t.Errorf("describe: %+v", got)
			}
			if got := c.run("gc", "--max-per-container", "0", "--image-high", "0", "--image-low", "0"); got.code != 0 || !strings.Contains(got.out, "removed container default/other/old") {
				t.Errorf("gc: %+v", got)
			}
			if got := c.run("delete", "--grace-period", "7", "web"); got.code != 0 {
				t.Errorf("delete: %+v", got)
			}
			var stopped []string
			for _, call := range c.stub.Calls() {
				if r, ok := call.Request.(*runtimeapi.StopContainerRequest); ok && r.GetTimeout() == 7 {
					stopped = append(stopped, r.GetContainerId())
				}
			}
			if !slices.Equal(stopped, []string{web}) {
				t.Errorf("stopped with its grace period: %v, want %s and not %s", stopped, web, left)
			}
			if pods, containers := c.stub.Left(); pods != 1 || containers != 1 {
				t.Errorf("%d pods and %d containers are left", pods, containers)
			}
		})
	}
}
