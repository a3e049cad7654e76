package verbs

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// elsewhere are the verbs and lines whose examples need a terminal, a process in
// the container, the whole machine or a long breath, with the script that runs
// the same on real engines.
var elsewhere = map[string]string{
	"serve":                               "docker/serve",
	"sync":                                "cri/sync",
	"cp":                                  "cri/cp",
	"attach":                              "cri/attach",
	"save":                                "cri/save",
	"who":                                 "cri/who",
	"history":                             "cri/history",
	"diff":                                "cri/history",
	"dump":                                "cri/dump",
	"top":                                 "cri/stats",
	"load":                                "cri/save",
	"kill":                                "cri/control",
	"pause":                               "cri/control",
	"unpause":                             "cri/control",
	"restart":                             "cri/control",
	"port-forward":                        "cri/port_forward",
	"crishim run --rm busybox echo hello": "cri/run",
	"crishim run --rm -it busybox sh":     "cri/run",
	"crishim run --rm -e NAME=value -v /srv:/data busybox env": "cri/run",
	"crishim logs -p web":                          "cri/why",
	"crishim events --since 10m":                   "cri/events_since",
	"crishim exec -it web sh":                      "cri/terminal",
	"crishim debug web":                            "cri/debug",
	"crishim debug --copy-to web-debug web":        "cri/debug",
	"crishim debug --profile net web netstat -tln": "cri/debug",
	"crishim debug --image alpine:3 web":           "cri/debug",
}

// exampleNode has what the examples in the help speak of, and their files in dir.
func exampleNode(t *testing.T, dir string) *commandTest {
	t.Helper()
	c := withStub(t, stubcri.Options{})
	c.stub.AddImage("busybox")
	web := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = t.TempDir() })
	labels := map[string]string{"app": "web"}
	id := c.stub.AddContainer(web, "web", func(o *runtimeapi.ContainerConfig) { o.LogPath, o.Labels = "web.log", labels })
	c.stub.Log(id, "stdout", "hello")
	job := c.stub.AddContainer(web, "job", func(o *runtimeapi.ContainerConfig) { o.LogPath = "job.log" })
	c.stub.Log(job, "stdout", "done")
	c.stub.Exit(job, 0)
	c.stub.AddContainer(c.stub.AddPod("default", "mypod"), "main")
	c.stub.AddImage("alpine:3")
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: team}\nspec: {containers: [{name: web, image: busybox}]}\n"
	if err := os.Mkdir(filepath.Join(dir, "pods"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"pod.json": `{"metadata": {"name": "made"}, "log_directory": "/nonexistent"}`, "pod.yaml": "metadata: {name: made}\nlog_directory: /nonexistent\n",
		"web.yaml": manifest, "job.yaml": manifest, "pods/web.yaml": manifest,
		"container.json": `{"metadata": {"name": "c"}, "image": {"image": "busybox"}}`, "container.yaml": containerFile,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.stdin = containerFile
	return c
}

// inDir makes paths of an example's arguments that name files of a directory, as if it were the working
// directory: that is one for all tests, which run side by side.
func inDir(dir string, args []string) []string {
	for i, arg := range args {
		if path := filepath.Join(dir, arg); i > 1 && arg != "" && !filepath.IsAbs(arg) {
			if _, err := os.Lstat(path); err == nil {
				args[i] = path
			}
		}
	}
	return args
}

// prepare brings the container into the state that an example wants.
func prepare(c *commandTest, line, dir string) {
	manifest := filepath.Join(dir, "web.yaml")
	switch {
	case strings.HasPrefix(line, "crishim start"):
		c.run("rm", "-f", "web")
		c.run("create", "web", c.file("c.json", `{"metadata": {"name": "web"}, "image": {"image": "busybox"}}`))
	case strings.HasPrefix(line, "crishim run -d --name web"):
		c.run("rmp", "-f", "web")
	case strings.HasPrefix(line, "crishim rm web"):
		c.run("stop", "web")
	case strings.HasPrefix(line, "crishim rmp web"):
		c.run("stopp", "web")
	case strings.HasPrefix(line, "crishim logs -f"), line == "crishim wait web":
		c.run("stop", "web")
	case strings.HasPrefix(line, "crishim delete"):
		c.run("rmp", "-f", "default/web")
		c.run("apply", "-f", manifest)
	case strings.HasPrefix(line, "crishim describe -o yaml"):
		c.run("apply", "-f", manifest)
	}
}

// crishimIn is the part of a line of shell that runs crishim.
func crishimIn(line string) string {
	_, inner, found := strings.Cut(line, "$(")
	if found {
		line = strings.TrimSuffix(inner, ")\"")
	}
	for part := range strings.SplitSeq(line, "|") {
		part, _, _ = strings.Cut(part, " >")
		if part = strings.TrimSpace(part); strings.HasPrefix(part, "crishim ") {
			return part
		}
	}
	return ""
}

// endless are verbs that go on until they are interrupted, once the runtime
// has got their call.
var endless = map[string]string{"events": "GetContainerEvents"}

// runExample runs a line as a user would who ends what does not end by itself.
func (c *commandTest) runExample(verb string, args []string) result {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	if call := endless[verb]; call != "" {
		c.stub.Before(call, func(context.Context) { cancel() })
	}
	return c.runAs(ctx, "crishim", args...)
}

func TestHelpExamples(t *testing.T) {
	t.Parallel()
	everyCommand(testApp(), func(name string, command *urfave.Command) {
		verb, _, _ := strings.Cut(name, " ")
		for _, line := range examples(command.Description) {
			script, both := elsewhere[verb]
			if !both {
				script, both = elsewhere[line]
			}
			t.Run(line, func(t *testing.T) {
				t.Parallel()
				if both {
					runsIn(t, script, verb)
					return
				}
				dir := t.TempDir()
				args := words(strings.ReplaceAll(crishimIn(line), "/tmp/", dir+"/"))
				if len(args) == 0 {
					t.Fatal("it does not run crishim")
				}
				c := exampleNode(t, dir)
				prepare(c, strings.Join(args, " "), dir)
				defer c.run("rmp", "--all", "--force") // with the log directories that run made
				r := c.runExample(verb, inDir(dir, args)[1:])
				if r.code != 0 && (verb != "doctor" || r.out == "") { // which may well find something on this machine
					t.Errorf("exit %d\n%s", r.code, r.err)
				}
			})
		}
	})
}

// runsIn checks that a script runs a verb.
func runsIn(t *testing.T, script, verb string) {
	t.Helper()
	text, err := os.ReadFile("../../../testdata/script/" + script + ".txtar")
	if err != nil || !strings.Contains(string(text), "crishim "+verb+" ") {
		t.Errorf("%s does not run %s: %v", script, verb, err)
	}
}

// Closing a pipe early, as head does, is no reason to print anything strange.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	c := exampleNode(t, t.TempDir())
	env := testProcess()
	env.Out = closedPipe{}
	env.LookupEnv = func(key string) (string, bool) {
		if key != "CONTAINER_RUNTIME_ENDPOINT" {
			return "", false
		}
		return c.stub.Endpoint, true
	}
	if code := commands.Main(t.Context(), []string{"crishim", "images"}, env); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
