package verbs

import (
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

func TestCompatExitCodes(t *testing.T) {
	t.Parallel()
	c := &commandTest{t: t, vars: map[string]string{}}
	for _, test := range []struct {
		line          string
		plain, compat int
	}{
		{"nosuch", 2, 3},
		{"ps --nosuch", 2, 1},
		{"ps -o nosuch", 2, 1},
		{"ps", 1, 1}, // nothing to dial
		{"start", 2, 1},
		{"ps x", 2, 0},
		{"pods x", 2, 1}, // crictl lists all pods
		{"rm", 2, 0},
		{"rmi", 2, 0},
		{"rmp", 2, 0},
		{"runp", 2, 0},
		{"run", 125, 0},
		{"create", 2, 0},
		{"stopp", 2, 0},
		{"exec", 125, 0},
	} {
		args := strings.Fields(test.line)
		if r := c.run(args...); r.code != test.plain {
			t.Errorf("crishim %s: exit %d, want %d\n%s", test.line, r.code, test.plain, r.err)
		}
		for _, r := range []result{c.run(append([]string{"--compat=crictl"}, args...)...), c.runAs(t.Context(), "/usr/bin/crictl", args...)} {
			if r.code != test.compat || (r.code == 0) != strings.HasPrefix(r.out, "NAME:") {
				t.Errorf("crictl %s: exit %d, want %d\n%s%s", test.line, r.code, test.compat, r.out, r.err)
			}
		}
	}
}

func TestCompatStopsAtOnceAndRemovesLogs(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	logs := t.TempDir()
	pod := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = logs })
	for _, name := range []string{"a", "b"} {
		id := c.stub.AddContainer(pod, name, func(o *runtimeapi.ContainerConfig) { o.LogPath = name + ".log" })
		c.stub.Log(id, "stdout", "text")
	}
	c.runAs(t.Context(), "crictl", "stop", "a").want(t, 0, "a\n", "")
	if got := lastRequest[*runtimeapi.StopContainerRequest](t, c.stub).GetTimeout(); got != 0 {
		t.Errorf("grace period is %d, want 0", got)
	}
	c.runAs(t.Context(), "crictl", "rm", "a").want(t, 0, "a\n", "")
	c.run("rm", "-f", "b").want(t, 0, "b\n", "")
	if got := lastRequest[*runtimeapi.StopContainerRequest](t, c.stub); got.GetTimeout() != 0 || got.GetContainerId() == "" {
		t.Errorf("rm -f gave a grace period: %v", got)
	}
	if left, _ := filepath.Glob(logs + "/*"); len(left) != 1 || filepath.Base(left[0]) != "b.log" {
		t.Errorf("log files left: %q, want b.log only", left)
	}
}

func TestCompatStats(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	for line, header := range map[string]string{
		"stats": "CONTAINER NAME CPU % MEM DISK INODES SWAP", "stats -a -o table": "CONTAINER NAME CPU % MEM DISK INODES SWAP",
		"statsp": "POD POD ID CPU % MEM", "stats --columns name": "NAME",
	} {
		r := c.runAs(t.Context(), "crictl", strings.Fields(line)...)
		if got, _, _ := strings.Cut(r.out, "\n"); r.code != 0 || strings.Join(strings.Fields(got), " ") != header {
			t.Errorf("crictl %s: exit %d, header %q, want %q\n%s", line, r.code, got, header, r.err)
		}
	}
}
