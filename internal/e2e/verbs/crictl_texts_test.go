package verbs

import (
	"fmt"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// The tables of crictl, and what it prints as lines of "Name: value", which scripts cut values out of.
func TestTextsOfCrictl(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	web := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) {
		p.Labels, p.Annotations = map[string]string{"tier": "front", "app": "web"}, map[string]string{"note": "evil\x1b[31m"}
	})
	c.stub.AddContainer(web, "run", func(o *runtimeapi.ContainerConfig) {
		o.Labels, o.Annotations = map[string]string{kube.LabelPodNamespace: "default", kube.LabelContainerName: "run"}, map[string]string{"io.kubernetes.container.hash": "99e55339"}
	})
	c.stub.Exit(c.stub.AddContainer(web, "ended"), 3)
	c.stub.AddCreated(web, "made")
	c.stub.AddImage("registry.example.com/app:v1", "registry.example.com/app:latest")
	c.stub.Image("registry.example.com/app:v1", func(i *runtimeapi.Image) {
		i.Pinned, i.Username, i.Uid, i.Size = true, "app", &runtimeapi.Int64Value{Value: 7}, 6934567
	})
	var all strings.Builder
	for _, line := range []string{
		"ps -a", "ps -a --no-trunc", "pods", "images", "images --digests --pinned", "ps -a -v", "ps -v -q", "pods -v", "images -v", "inspect -o table web/run", "inspect -q -o table web/run", "inspect -o table web/ended",
		"inspect -o table web/made", "inspectp -o table web", "inspecti -o table registry.example.com/app:v1", "imagefsinfo -o table", "runtime-config",
	} {
		r := c.run(append([]string{"--compat=crictl"}, strings.Fields(line)...)...)
		fmt.Fprintf(&all, "$ crictl %s\n%s%s", line, r.out, r.err)
		if r.code != 0 {
			t.Errorf("%s: %+v", line, r)
		}
	}
	test.Golden(t, "crictl-texts", all.String())
}

// A format is more than -q.
func TestFormatOverQuiet(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	for _, line := range []string{"ps -q -o json", "pods -q -o yaml", "images -q -o json", "ps -a -q -o json"} {
		plain := c.run(strings.Fields(strings.Replace(line, "-q ", "", 1))...)
		c.run(strings.Fields(line)...).want(t, 0, plain.out, "")
		if !strings.Contains(plain.out, "id") {
			t.Errorf("%s: %+v", line, plain)
		}
	}
}
