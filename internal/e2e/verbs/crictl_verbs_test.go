package verbs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// Command lines that crishim refuses, or answers in another way than crictl.
func TestCrictlsVerbs(t *testing.T) {
	for _, test := range []struct {
		line, out string // $WEB and $MADE are ids of containers, $HELP is a help page
		code      int
		err       string // is in it
	}{
		{"ps --pod nosuch -q", "", 0, ""},
		{"stats nosuch --no-headers", "", 0, ""},
		{"statsp nosuch --no-headers", "", 0, ""},
		{"images -o name -f reference=busy", "", 0, ""}, // it is known by its tag only
		{"images -o name -f reference=pau", "registry.k8s.io/pause:3.9\n", 0, ""},
		{"images -o name -f since=nosuch", "docker.io/library/busybox:latest\nregistry.k8s.io/pause:3.9\n", 0, ""},
		{"images -o name -f since=registry.k8s.io/pause:3.9", "docker.io/library/busybox:latest\n", 0, ""},
		{"images -o name -f before=docker.io/library/busybox:latest", "registry.k8s.io/pause:3.9\n", 0, ""},
		{"images -o bogus --no-headers nosuch", "", 0, ""},
		{"stats -o bogus --no-headers nosuch", "", 0, ""},
		{"ps -o bogus", "", 1, "unknown output format"},
		{"metricdescs -o bogus", "$HELP", 0, ""},
		{"info extra", "$HELP", 0, ""},
		{"config", "$HELP", 0, ""},
		{"config timeout", "", 1, "needs a value"},
		{"create jsonschema", "$HELP", 0, ""},
		{"run js", "$HELP", 0, ""},
		{"pods -o name nosuch", "default/web\n", 0, ""},
		{"exec --name web echo hello", "$WEB:\nhello\n", 0, ""},
		{"exec -q --name web echo hello", "hello\n", 0, ""},
		{"exec -x --name web echo hello", "hello\n", 0, ""},
		{"exec -e web false", "", 0, "ignored"},
		{"exec -e --name web false", "$WEB:\n", 0, "warning"},
		{"exec -s -e web false", "", 0, "ignored"},
		{"inspect web nosuch", "", 1, "nosuch"},
		{"inspect nosuch web", "", 1, "nosuch"},
		{"inspectp web nosuch", "", 1, "nosuch"},
		{"inspecti busybox nosuch", "", 1, "nosuch"},
		{"start nosuch $MADE", "", 1, "nosuch"},
		{"start $MADE nosuch", "$MADE\n", 1, "nosuch"},
		{"update $WEB", "$WEB\n", 0, ""},
		{"update --cpu-count 2 --cpu-maximum 3 $WEB", "$WEB\n", 0, ""},
		{"exec --tls-ca /nonexistent/ca web true", "", 1, "/nonexistent/ca"},
		{"exec --tls-cert /nonexistent/a --tls-key /nonexistent/b web true", "", 1, "/nonexistent/a"},
		{"attach --tls-ca /nonexistent/ca web", "", 1, "/nonexistent/ca"},
		{"port-forward --tls-ca /nonexistent/ca web 80", "", 1, "/nonexistent/ca"},
		{"exec -n x true", `Incorrect Usage: invalid value "x" for flag -n: parse error` + "\n\n$HELP", 1, "for flag -n: parse error"},
		{"ps --last x", `Incorrect Usage: invalid value "x" for flag -last: parse error` + "\n\n$HELP", 1, "for flag -last: parse error"},
		{"stop -t x web", `Incorrect Usage: invalid value "x" for flag -t: parse error` + "\n\n$HELP", 1, "for flag -t: parse error"},
		{"-t bogus ps", `Incorrect Usage: invalid value "bogus" for flag -t: parse error` + "\n\n$HELP", 1, "for flag -t: parse error"},
		{"--max-retries x ps", `Incorrect Usage: invalid value "x" for flag -max-retries: parse error` + "\n\n$HELP", 1, "for flag -max-retries: parse error"},
		{"logs --tail x web", `Incorrect Usage: invalid value "x" for flag -tail: parse error` + "\n\n$HELP", 1, "for flag -tail: parse error"},
		{"update --memory x $WEB", `Incorrect Usage: invalid value "x" for flag -memory: parse error` + "\n\n$HELP", 1, "for flag -memory: parse error"},
		{"ps --nosuch", "Incorrect Usage: flag provided but not defined: -nosuch\n\n$HELP", 1, "flag provided but not defined: -nosuch"},
		{"ps --name", "Incorrect Usage: flag needs an argument: -name\n\n$HELP", 1, "flag needs an argument: -name"},
		{"logs --since 0 web", "hello\n", 0, ""},
	} {
		t.Run(test.line, func(t *testing.T) {
			t.Parallel()
			c := withStub(t, stubcri.Options{})
			pod := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = t.TempDir() })
			web := c.stub.AddContainer(pod, "web", func(o *runtimeapi.ContainerConfig) { o.LogPath = "web.log" })
			c.stub.Log(web, "stdout", "hello")
			vars := strings.NewReplacer("$WEB", web, "$MADE", c.stub.AddCreated(pod, "made"))
			c.stub.AddImage("registry.k8s.io/pause:3.9")
			c.stub.Image("docker.io/library/busybox:latest", func(i *runtimeapi.Image) { i.RepoDigests = nil })
			r := c.runAs(t.Context(), "crictl", strings.Fields(vars.Replace(test.line))...)
			want, isHelp := strings.CutSuffix(vars.Replace(test.out), "$HELP")
			got := r.out
			if isHelp {
				at := strings.Index(got, "NAME:")
				if at < 0 {
					t.Fatalf("no help page: %+v", r)
				}
				got = got[:at]
			}
			if r.code != test.code || got != want || (test.err == "") != (r.err == "") || !strings.Contains(r.err, test.err) {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestSchemasOfBothKinds(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	pod, container := c.run("create", "jsonschema", "--pod"), c.run("create", "js", "-c")
	c.run("run", "jsonschema", "-p", "--container").want(t, 0, pod.out+container.out, "")
	c.run("create", "jsonschema").want(t, 0, container.out, "")
}

// A new file of the config verb may be below a missing directory, and retries may have no end.
func TestConfigOfCrictl(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	path := filepath.Join(t.TempDir(), "new", "crictl.yaml")
	c.run("--config", path, "config", "--set", "max-retries=-1,timeout=3").want(t, 0, "", "")
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "max-retries: -1") {
		t.Errorf("got %q, %v", text, err)
	}
	c.run("--config", path, "config", "--set", "max-retries=-2").want(t, 2, "", "crishim: invalid max-retries \"-2\": must be a number, 0 or more, or -1 for no end\n")
	r := c.runAs(t.Context(), "crictl", "--config", path, "config", "--list")
	if head, _, _ := strings.Cut(r.out, "\n"); r.code != 0 || strings.Join(strings.Fields(head), " ") != "KEY VALUE" {
		t.Errorf("got %+v", r)
	}
}
