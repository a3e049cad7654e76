package verbs

import (
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// TestBeforeNow: each runtime has the log of the attempt before, why is one line where all is well, and a runtime
// without a journal says that it has none.
func TestBeforeNow(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"containerd 1.6", "CRI-O", "cri-dockerd"} {
		c := withStub(t, stubcri.Profiles()[profile])
		logs := t.TempDir()
		pod := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = logs })
		first := c.stub.AddContainer(pod, "main", func(o *runtimeapi.ContainerConfig) { o.LogPath = filepath.Base("0.log") })
		c.stub.Log(first, "stdout", "the last words")
		c.stub.Exit(first, 3)
		c.stub.AddContainer(pod, "main", func(o *runtimeapi.ContainerConfig) { o.LogPath, o.Metadata.Attempt = "1.log", 1 })
		if r := c.run("logs", "-p", "web"); r.code != 0 || r.out != "the last words\n" {
			t.Errorf("%s: logs -p: %+v", profile, r)
		}
		if r := c.run("why", "web"); r.code != 0 || !strings.Contains(r.out, "main runs again: before, it exited with status 3") {
			t.Errorf("%s: why: %+v", profile, r)
		}
		c.stub.AddContainer(c.stub.AddPod("default", "fine"), "main")
		if r := c.run("why", "fine"); r.out != "default/fine: Running, 1/1 ready; nothing is wrong\n" {
			t.Errorf("%s: why of a healthy pod: %+v", profile, r)
		}
		if profile == "containerd 1.6" {
			if r := c.run("events", "--since", "1h", "--until", "0s"); r.code != 1 || !strings.Contains(r.err, "keeps no journal") {
				t.Errorf("%s: events: %+v", profile, r)
			}
		}
	}
}
