package commands

import (
	"slices"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/test/stubcri"
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

// A copy has what its container has.
func TestDebugCopyTakesNoProfile(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	if r := c.run("debug", "--copy-to", "x", "--profile", "net", "web"); r.code != 125 || !strings.Contains(r.err, "a copy has the security and the environment of its container") {
		t.Errorf("got %+v", r)
	}
}
