package verbs

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// withLog is a stub with a running container that has logged a line.
func withLog(t *testing.T) (*commandTest, string) {
	t.Helper()
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "pod", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = t.TempDir() })
	id := c.stub.AddContainer(pod, "web", func(o *runtimeapi.ContainerConfig) { o.LogPath = "web.log" })
	c.stub.Log(id, "stdout", "listening on port 80")
	return c, id
}

func TestWaitForALogLine(t *testing.T) {
	t.Parallel()
	c, id := withLog(t)
	c.run("wait", "--for", "log=port [0-9]+$", "web").want(t, 0, "", "")
	c.run("wait", "--for", "log=^port", "--timeout", "1", "web").want(t, 1, "",
		"crishim: web has logged no line that matches \"^port\" after 1s\n")
	c.run("wait", "--for", "log=x", "--timeout", "1", "nobody").want(t, 1, "",
		"crishim: there is no container \"nobody\" yet: waiting for it\nhint: `crishim ps -a` lists them\ncrishim: nobody is not there, not started, after 1s\n")
	c.run("wait", "--for", "running", "--timeout", "1", "wbe").want(t, 1, "",
		"crishim: there is no container \"wbe\" yet: waiting for it\nhint: did you mean web? `crishim ps -a` lists them\ncrishim: wbe is not there, not running, after 1s\n")

	done := make(chan result)
	go func() { done <- c.run("wait", "--for", "log=^ready", "web") }()
	c.stub.Log(id, "stderr", "ready for you")
	(<-done).want(t, 0, "", "")

	c.stub.Exit(id, 0)
	c.run("wait", "--for", "log=ready", "web").want(t, 0, "", "")
	c.run("wait", "--for", "log=never", "web").want(t, 1, "",
		"crishim: web has ended and has logged no line that matches \"never\"\n")
}

func TestWaitWithoutEvents(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{Unimplemented: []string{"GetContainerEvents"}})
	id := c.stub.AddContainer(c.stub.AddPod("default", "pod"), "web")
	done := make(chan result)
	go func() { done <- c.run("wait", "web") }()
	for !slices.Contains(c.stub.Methods(), "ContainerStatus") {
		runtime.Gosched()
	}
	c.stub.Exit(id, 3)
	(<-done).want(t, 0, "3\n", "")
}

func TestWaitForALogLineUsage(t *testing.T) {
	for _, text := range []string{"log=", "log=["} {
		c := withStub(t, stubcri.Options{})
		if r := c.run("wait", "--for", text, "web"); r.code != cli.ExitUsage || !strings.Contains(r.err, text) {
			t.Errorf("%s: got %+v", text, r)
		}
	}
}
