package verbs

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// A runtime that can do no more than CRI pulls what is loaded, and cannot save.
func TestSaveAndLoadByCRIAlone(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	c.stub.AddImage("busybox")
	file := c.file("image.tar", string(test.ImageArchive("example.com/app:1", nil)))
	if r := c.run("load", "-i", file); r.code != 0 || !strings.HasPrefix(r.out, "Loaded image: 127.0.0.1:") || !strings.Contains(r.out, "/app:1 (sha256:") {
		t.Errorf("load: %+v", r)
	}
	c.stub.Fail("PullImage", status.Error(codes.Unknown, "http: server gave HTTP response to HTTPS client"))
	if r := c.run("load", "-i", file); r.code != 1 || !strings.Contains(r.err, "HTTP response to HTTPS client") || !strings.Contains(r.err, "hint: stubcri pulls it from a registry of this command, which has no TLS") || r.out != "" {
		t.Errorf("load where the runtime wants TLS: %+v", r)
	}
	c.stub.Fail("PullImage", nil)
	c.stub.AddImage("example.com/pause:1")
	c.stub.Image("example.com/pause:1", func(i *runtimeapi.Image) { i.Pinned = true })
	pause := c.file("pause.tar", string(test.ImageArchive("example.com/pause:1", nil)))
	if r := c.run("load", "-i", pause); r.code != 1 || !strings.HasSuffix(r.err, "example.com/pause:1 is an image that the runtime needs\nhint: `--force` replaces it\n") {
		t.Errorf("load of a pinned image: %+v", r)
	}
	if r := c.run("load", "--force", "-i", pause); r.code != 0 {
		t.Errorf("load --force of a pinned image: %+v", r)
	}
	if r := c.run("save", "busybox"); r.code != 1 || !strings.Contains(r.err, "crishim: stubcri has no call that reads images\nhint: ") || r.out != "" {
		t.Errorf("save: %+v", r)
	}
}

func TestNoArchiveOnATerminal(t *testing.T) {
	t.Parallel()
	env := testProcess()
	env.InTerminal, env.OutTerminal = true, true
	for _, args := range [][]string{{"save", "busybox"}, {"save", "-o", "-", "busybox"}, {"load"}, {"load", "-i", "-"}} {
		var errs test.Buffer
		env.Err = &errs
		if code := commands.Main(t.Context(), append([]string{"crishim"}, args...), env); code != 2 || !strings.Contains(errs.String(), "terminal") {
			t.Errorf("%v: status %d, %s", args, code, errs.String())
		}
	}
}
