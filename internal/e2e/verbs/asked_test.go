package verbs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// TestEventsFailWithoutHeader: a runtime without events causes an error and no table.
func TestEventsFailWithoutHeader(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{Unimplemented: []string{"GetContainerEvents"}})
	if r := c.run("events", "-o", "table"); r.code != 1 || r.out != "" || r.err == "" {
		t.Errorf("got %+v", r)
	}
}

// TestInspectImageByItsOtherName: the table has the name that the user asked for.
func TestInspectImageByItsOtherName(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	c.stub.AddImage("registry.example.com/app:v1", "registry.example.com/app:latest")
	for asked, want := range map[string]string{"registry.example.com/app:latest": "registry.example.com/app:latest", "registry.example.com/app": "registry.example.com/app:latest", "registry.example.com/app:v1": "registry.example.com/app:v1"} {
		lines := fields(c.run("inspecti", "-o", "table", asked).out)
		if len(lines) != 2 || !strings.Contains(lines[1], " "+want+" ") {
			t.Errorf("%s: got %q", asked, lines)
		}
	}
}

// TestImageFiltersInAnyOrder: before and since name an image that another filter may leave out.
func TestImageFiltersInAnyOrder(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	for _, name := range []string{"alpine", "busybox", "debian"} {
		c.stub.AddImage(name)
	}
	for _, line := range []string{"images -o name debian -f before=busybox", "images -o name -f reference=debian -f before=busybox", "images -o name -f before=busybox -f reference=debian"} {
		c.run(strings.Fields(line)...).want(t, 0, "docker.io/library/debian:latest\n", "")
	}
}

// TestSaveTakesNoPattern: the error says that save wants names.
func TestSaveTakesNoPattern(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	r := c.run("save", "-o", "/nonexistent/x", "busy*")
	const want = "crishim: save takes names and ids, not the pattern \"busy*\"\n"
	if first, _, _ := strings.Cut(r.err, "\n"); r.code != 2 || cmp.Diff(want, first+"\n") != "" || !strings.Contains(r.err, "crishim images 'busy*'") {
		t.Errorf("got %+v", r)
	}
}
