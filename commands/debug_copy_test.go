package commands

import (
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// A copy with the name of another container of its pod would pass for an attempt of that one.
func TestDebugCopyNeedsANameOfItsOwn(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "shop")
	c.stub.AddContainer(pod, "till", func(c *runtimeapi.ContainerConfig) { c.Metadata.Attempt = 1 })
	c.stub.Exit(c.stub.AddContainer(pod, "db"), 1)
	c.stub.AddContainer(c.stub.AddPod("default", "other"), "free")
	for name, refused := range map[string]bool{"till": true, "db": true, "free": false} {
		got := c.run("debug", "--copy-to", name, "shop/till", "true")
		if said := strings.Contains(got.err, `the pod has a container "`+name+`" already`); said != refused || refused && got.code != 125 {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if slices.Contains(c.stub.Methods(), "CreateContainer") {
		t.Error("a container was created")
	}
}

// A copy has what its container has.
func TestDebugCopyTakesNoImage(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	if r := c.run("debug", "--copy-to", "x", "--image", "busybox", "web"); r.code != 125 || !strings.Contains(r.err, "a copy has what its container has") {
		t.Errorf("got %+v", r)
	}
}
