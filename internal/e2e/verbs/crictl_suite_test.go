package verbs

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// TestSuiteOfCrictl has the expectations of crictl's own end-to-end suite, in which it looks at the
// text of help pages, notes and errors.
func TestSuiteOfCrictl(t *testing.T) {
	empty := func(*stubcri.Server) {}
	one := func(s *stubcri.Server) {
		s.AddContainer(s.AddPod("default", "web"), "nginx")
		s.AddImage("registry.k8s.io/pause:3.10")
		s.Image("registry.k8s.io/pause:3.10", pinned)
	}
	denied := func(s *stubcri.Server) { s.Fail("PullImage", status.Error(codes.Unknown, "connection refused")) }
	for _, test := range []struct {
		line     string
		node     func(*stubcri.Server)
		code     int
		out, err string // regular expressions; "" for nothing
	}{
		{"help", empty, 0, `crictl - client for CRI`, ""},
		{"--help", empty, 0, `crictl - client for CRI`, ""},
		{"-h", empty, 0, `crictl - client for CRI`, ""},
		{"--invalid", empty, 1, `crictl - client for CRI`, `flag provided but not defined`},
		{"rm", one, 0, `crictl rm - Remove one or more containers\n(.|\n)* crictl rm \[options\]`, ""},
		{"rmi", one, 0, `crictl rmi - Remove one or more images\n`, ""},
		{"rmp", one, 0, `crictl rmp - Remove one or more pods\n`, ""},
		{"pull -h", one, 0, `crictl pull - Pull an image from a registry\n`, ""},
		{"info --help", one, 0, `crictl info - Display information of the container runtime\n`, ""},
		{"inspect --help", one, 0, `crictl inspect - Display the status of one or more containers\n`, ""},
		{"create jsonschema", one, 0, `crictl create jsonschema - `, ""},
		{"rm -a", empty, 0, "", `No containers to remove`},
		{"rmi -a", empty, 0, "", `No images to remove`},
		{"rmp -a", empty, 0, "", `No pods to remove`},
		{"events --output=ini", one, 1, "", `don't support .* format`},
		{"events --template={{.containerID}}", one, 1, "", `template can't be used with "json" format`},
		{"events --output=go-template --template={{", one, 1, "", `failed to parse go-template`},
		{"pull localhost/wrong", denied, 1, "", `pulling image`},
		{"rmi registry.k8s.io/pause:3.10", one, 0, `^Deleted: registry.k8s.io/pause:3.10\n$`, ""},
		{"rmi -a", one, 0, `(?m)^Deleted: registry.k8s.io/pause:3.10$`, `removing`},
		{"inspect", empty, 0, `NAME:\n *crictl inspect - `, `No IDs provided or nothing found per filter`},
		{"inspect --name nosuch", one, 0, `NAME:\n *crictl inspect - `, `nothing found per filter`},
		{"inspectp --name nosuch", one, 0, `NAME:\n *crictl inspectp - `, `nothing found per filter`},
		{"inspecti --name nosuch", one, 0, `NAME:\n *crictl inspecti - `, `nothing found per filter`},
		{"inspect -a -q", one, 0, `^\{\n`, ""},
	} {
		for _, argv := range [][]string{{"crictl"}, {"crishim", "--compat=crictl"}} {
			t.Run(strings.Join(append(argv, test.line), " "), func(t *testing.T) {
				t.Parallel()
				c := withStub(t, stubcri.Options{})
				test.node(c.stub)
				r := c.runAs(t.Context(), argv[0], append(argv[1:], strings.Fields(test.line)...)...)
				if r.code != test.code || !matchesOrEmpty(test.out, r.out) || !matchesOrEmpty(test.err, r.err) {
					t.Errorf("got %+v", r)
				}
			})
		}
	}
}

func pinned(i *runtimeapi.Image) { i.Pinned = true }

func matchesOrEmpty(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	return regexp.MustCompile(pattern).MatchString(text)
}

// Without the name and --compat=crictl these lines answer as before.
func TestSuiteOfCrictlIsForCrictlOnly(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	c.stub.AddImage("registry.k8s.io/pause:3.10")
	c.stub.Image("registry.k8s.io/pause:3.10", pinned)
	for line, want := range map[string]result{
		"rmi registry.k8s.io/pause:3.10": {1, "", `image "registry.k8s.io/pause:3.10" is pinned`},
		"inspect --name nosuch":          {0, "[]\n", ""},
		"rm -a":                          {0, "", "removing 0 containers\n"},
		"rm":                             {2, "", "rm needs CONTAINER"},
		"events --output=ini":            {2, "", `unknown output format "ini"`},
		"--invalid":                      {2, "", `unknown flag "--invalid"`},
	} {
		if r := c.run(strings.Fields(line)...); r.code != want.code || r.out != want.out || !strings.Contains(r.err, want.err) {
			t.Errorf("%s: got %+v", line, r)
		}
	}
	c.run("help", "rm").want(t, 0, c.run("rm", "-h").out, "")
	if r := c.run("help"); !strings.Contains(r.out, "crishim - Debug containers") {
		t.Errorf("got %+v", r)
	}
}

// The span of a command is named after the verb, the span of a call after the call.
func TestSpansOfCrictlsSuite(t *testing.T) {
	t.Parallel()
	for line, call := range map[string]string{"version": "Version", "pods": "ListPodSandbox"} {
		spans := startCollector(t)
		c := withStub(t, stubcri.Options{})
		if r := c.runAs(context.Background(), "crictl", "--enable-tracing", "--tracing-endpoint="+spans.address, line); r.code != 0 {
			t.Errorf("got %+v", r)
		}
		want := regexp.MustCompile(`(?m)^` + line + `$(.|\n)*^` + line + ` > .*` + call)
		if got := strings.Join(spans.paths(), "\n"); !want.MatchString(got) {
			t.Errorf("%s: got %s", line, got)
		}
	}
}
