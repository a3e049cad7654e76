package verbs

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// Known faults of crictl that crishim does not have, unless another test covers them. The whole list is in
// docs/crictl.md.

func TestNamesOnARuntimeThatIgnoresFilters(t *testing.T) {
	c := withStub(t, stubcri.Options{IgnoreFilters: true})
	seedNode(c.stub)
	for line, want := range map[string]string{
		"images -o name registry.k8s.io/pause":      "registry.k8s.io/pause:3.9\n",
		"pods -o name --label app=web":              "default/web\n",
		"pods -o name --state notready":             "",
		"ps -a -o name --label app=web":             "default/web/nginx\n",
		"ps -o name":                                "default/web/nginx\n",
		"ps -a -o name --pod db --name migrate":     "prod/db/migrate\n",
		"stats -o name --label app=web":             "default/web/nginx\n",
		"statsp -o name --label app=web":            "default/web\n",
		"images -o name -f reference=example.*app:": "registry.example.com/app:v1\n",
	} {
		if r := c.run(strings.Fields(line)...); r.code != 0 || r.out != want || r.err != "" {
			t.Errorf("%s: %+v, want %q", line, r, want)
		}
	}
}

func TestImagesThatHaveATagOnly(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	c.stub.AddImage("registry.example.com/local:dev")
	c.stub.Image("registry.example.com/local:dev", func(i *runtimeapi.Image) { i.RepoDigests = nil })
	for _, line := range []string{"images -o name -f reference=local", "images -o name registry.example.com/local", "images -o name -f dangling=false"} {
		c.run(strings.Fields(line)...).want(t, 0, "registry.example.com/local:dev\n", "")
	}
}

func TestLabelValueWithAnEqualsSign(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.Labels = map[string]string{"args": "a=b,c=d="} })
	c.stub.AddContainer(pod, "app", func(o *runtimeapi.ContainerConfig) { o.Labels = map[string]string{"token": "abc=="} })
	c.run("pods", "-o", "name", "--label", "args=a=b").want(t, 0, "", "")
	c.run("ps", "-o", "name", "--label", "token=abc==").want(t, 0, "default/web/app\n", "")
	c.run("ps", "-o", "name", "--label", "token=abc").want(t, 0, "", "")
}

func TestLabelKeyAlone(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	for line, want := range map[string]string{
		"pods -o name --label app":                     "default/web\n",
		"ps -o name -a --label app":                    "prod/db/postgres\nprod/db/migrate\ndefault/web/nginx\n",
		"ps -o name -a --label app --label app=db":     "prod/db/postgres\nprod/db/migrate\n",
		"ps -o name -a --label app --selector app!=db": "default/web/nginx\n",
	} {
		r := c.run(strings.Fields(line)...)
		if r.code != 0 || r.err != "" || sortedLines(r.out) != sortedLines(want) {
			t.Errorf("%s: %+v, want %q", line, r, want)
		}
	}
}

func sortedLines(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestPipesGetNoEscapeCodes(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	for _, line := range []string{"ps -a", "pods", "images", "stats -a", "statsp", "config --list", "endpoints", "info", "inspect web", "describe web"} {
		if r := c.run(strings.Fields(line)...); strings.Contains(r.out+r.err, "\x1b") || r.out == "" {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

func TestStatspWithOnePodThatCannotBeMeasured(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	broken := status.Error(codes.Unknown, "sandbox has no cgroup parent")
	c.stub.Fail("ListPodSandboxStats", broken)
	calls := 0
	c.stub.Before("PodSandboxStats", func(context.Context) {
		if calls++; calls%2 == 1 {
			c.stub.Fail("PodSandboxStats", broken)
		} else {
			c.stub.Fail("PodSandboxStats", nil)
		}
	})
	r := c.run("statsp", "-o", "jsonpath={.stats[*].attributes.metadata.name}: {.stats[*].linux.memory.workingSetBytes.value}")
	if r.code != 0 || !strings.HasPrefix(r.err, "crishim: warning: default/") || !strings.HasSuffix(r.err, " cannot be measured: sandbox has no cgroup parent\n") ||
		strings.Count(r.err, "\n") != 1 || !strings.HasSuffix(r.out, ": 5242880\n") || !strings.Contains(r.out, "web") || !strings.Contains(r.out, "db") {
		t.Errorf("one of two pods: %+v", r)
	}
	c.stub.Before("PodSandboxStats", nil)
	c.stub.Fail("PodSandboxStats", broken)
	c.run("statsp", "--columns", "pod,mem,net", "--no-headers", "--sort", "pod").want(t, 0, "default/web   6.29MB   -\nprod/db       0B       -\n",
		"crishim: warning: the runtime does not measure default/web, prod/db as a whole: shown are its containers together, without network (sandbox has no cgroup parent)\n")
	if r := c.run("statsp", "--label", "app", "--columns", "pod", "--no-headers"); r.code != 0 || r.out != "default/web\n" {
		t.Errorf("by a label: %+v", r)
	}
	c.run("statsp", "-o", "json", "db").want(t, 1, "", "crishim: sandbox has no cgroup parent\n")
	c.stub.Fail("ListPodSandboxStats", status.Error(codes.Unimplemented, "unknown method"))
	if r := c.run("statsp"); r.code != 1 || strings.Count(r.err, "\n") > 2 || !strings.Contains(r.err, "does not implement this call") {
		t.Errorf("a runtime without pod stats: %+v", r)
	}
}

func TestRuntimeThatLeavesEverythingEmpty(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "web")
	c.stub.AddContainer(pod, "app")
	c.stub.AddImage("empty")
	c.stub.Image("empty", func(i *runtimeapi.Image) { i.RepoTags, i.RepoDigests, i.Size = nil, nil, 0 })
	for _, line := range []string{"images", "images -o json", "images -q", "images -o name", "images --digests", "inspecti", "rmi --prune --dry-run"} {
		if r := c.run(strings.Fields(line)...); r.code != 0 || r.out == "" || r.err != "" {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

// A missing target does not hide the others.
func TestStatsWithoutOneOfSeveral(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	c.stub.AddContainer(c.stub.AddPod("prod", "db"), "postgres")
	c.run("stats", "-o", "name", "db", "nosuch").want(t, 1, "prod/db/postgres\n", "crishim: there is no container \"nosuch\"\nhint: `crishim ps -a` lists them\n")
	c.run("statsp", "-o", "name", "nosuch", "db").want(t, 1, "prod/db\n", "crishim: there is no pod \"nosuch\"\nhint: `crishim pods` lists them\n")
	c.run("stats", "nosuch").want(t, 1, "", "crishim: there is no container \"nosuch\"\nhint: `crishim ps -a` lists them\n")
}

// A container that nobody labelled is in a pod all the same.
func TestStatsOfAContainerWithoutLabels(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	c.stub.AddContainer(c.stub.AddPod("prod", "db"), "postgres")
	c.run("stats", "-o", "name").want(t, 0, "prod/db/postgres\n", "")
	c.run("stats", "-a", "--no-headers", "--columns", "pod,name").want(t, 0, "prod/db   postgres\n", "")
}
