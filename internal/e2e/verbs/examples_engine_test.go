package verbs

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
)

// elsewhereOnEngine are examples that need a registry or a check-point, or go on
// until somebody ends them, with the script that runs the same on real engines.
var elsewhereOnEngine = map[string]string{
	"crishim pull busybox":                                                    "cri/images",
	"crishim create --with-pull web - < container.json":                       "cri/images",
	"crishim pull --username me --password-stdin registry.example.com/app:v1": "cri/images",
	"kill": "cri/control", "pause": "cri/control", "unpause": "cri/control", "restart": "cri/control",
	"events":                                "cri/stats",
	"checkpoint":                            "cri/node",
	"crishim debug --copy-to web-debug web": "cri/debug",
	"crishim debug web":                     "cri/debug", "crishim debug web ps": "cri/debug",
}

// realNode is a node on a real engine that has what the examples speak of. Other
// tests may run beside it: its own name stands for "web" everywhere, and
// what would remove what others have made only says so.
type realNode struct {
	t         *testing.T
	endpoint  string
	name, dir string
	names     *strings.Replacer
	whole     bool // nothing has changed since it was made ready
}

func newRealNode(t *testing.T) *realNode {
	t.Helper()
	image := os.Getenv("CRISHIM_TEST_IMAGE")
	if image == "" {
		test.Missing(t, "CRISHIM_TEST_IMAGE names no image")
	}
	n := &realNode{t: t, name: "ex" + strings.ToLower(rand.Text()[:10]), dir: t.TempDir()}
	n.endpoint = "docker://" + strings.TrimPrefix(enginetest.Require(t).Endpoint().Host, "unix://")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n.names = strings.NewReplacer("web", n.name, "mypod", n.name, "team", n.name, "alpine:3", image, "busybox", image,
		"8080:", strconv.Itoa(port)+":", "/tmp/", n.dir+"/")
	if err := os.Mkdir(n.path("pods"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.write("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: team}\nspec: {terminationGracePeriodSeconds: 1, "+
		"containers: [{name: web, image: busybox, imagePullPolicy: Never, command: [sh, -c, 'trap \"exit 0\" TERM; while :; do sleep 0.1; done']}]}\n")
	for _, name := range []string{"pods/web.yaml", "job.yaml"} {
		if err := os.Link(n.path("web.yaml"), n.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, ext := range []string{"json", "yaml"} {
		n.write("pod."+ext, `{"metadata": {"name": "web", "namespace": "team"}}`)
		n.write("container."+ext, `{"metadata": {"name": "more"}, "image": {"image": "busybox"}, "command": ["sleep", "100000"]}`)
	}
	n.write("main.json", `{"metadata": {"name": "web"}, "image": {"image": "busybox"}, "labels": {"app": "web"}, "command": `+
		`["sh", "-c", "echo hello; trap 'exit 0' TERM; while :; do sleep 0.1; done"]}`)
	t.Cleanup(n.clear)
	return n
}

// path returns the path of a file that an example names.
func (n *realNode) path(name string) string { return filepath.Join(n.dir, n.names.Replace(name)) }

// write writes a file in which the names are the node's.
func (n *realNode) write(name, text string) {
	n.t.Helper()
	if err := os.WriteFile(n.path(name), []byte(n.names.Replace(text)), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *realNode) read(name string) string {
	n.t.Helper()
	text, err := os.ReadFile(n.path(name))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

// run runs a line in which the names are the examples'.
func (n *realNode) run(args ...string) result {
	n.t.Helper()
	vars := map[string]string{
		"CONTAINER_RUNTIME_ENDPOINT": n.endpoint, "CRI_CONFIG_FILE": n.dir + "/crictl.yaml", "CRISHIM_ROOT": n.dir + "/root", "HOME": n.dir,
	}
	lookup := func(key string) (string, bool) { value, ok := vars[key]; return value, ok }
	if err := os.WriteFile(vars["CRI_CONFIG_FILE"], nil, 0o600); err != nil {
		n.t.Fatal(err)
	}
	var out, errs test.Buffer
	env := &cli.Process{
		In: strings.NewReader(n.read("container.yaml")), Out: &out, Err: &errs, LookupEnv: lookup, Now: time.Now, Version: "v0.0.0-test",
		StartShim: systemShim, ConnectTimeout: time.Minute,
	}
	for i, arg := range args {
		if args[i] = n.names.Replace(arg); arg == "job" {
			args[i] = n.name
		}
	}
	// Its cleaning up must not be cut short by the end of the test.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), 2*time.Minute)
	defer cancel()
	return result{commands.Main(ctx, inDir(n.dir, args), env), out.String(), errs.String()}
}

// must runs what makes the node ready.
func (n *realNode) must(words ...string) string {
	n.t.Helper()
	r := n.run(append([]string{"crishim"}, words...)...)
	if r.code != 0 {
		n.t.Fatalf("%s: %+v", strings.Join(words, " "), r)
	}
	return strings.TrimSpace(r.out)
}

// clear removes every pod of this node.
func (n *realNode) clear() {
	for pod := range strings.FieldsSeq(n.must("pods", "-q", "--name", "^web$")) {
		n.must("rmp", "-f", pod)
	}
}

// ready brings the pod and its container into the state that an example wants.
func (n *realNode) ready(line string) {
	n.t.Helper()
	if strings.Contains(line, " jsonschema") || isOnlySaid(line) {
		return
	}
	changes := slices.Contains(changing, strings.Fields(line)[1])
	if n.whole && !changes {
		return
	}
	n.whole = !changes
	if strings.HasPrefix(line, "crishim delete") || strings.HasPrefix(line, "crishim describe") {
		n.clear()
		n.must("apply", "-q", "--wait", "-f", "web.yaml")
		return
	}
	pods := strings.Fields(n.must("pods", "-q", "-s", "ready", "--name", "^web$"))
	if len(pods) != 1 || n.must("ps", "-aq", "--name", "^more$", "--pod", pods[0]) != "" {
		n.clear()
		pods = []string{n.must("runp", "pod.json")}
	}
	verb := strings.Fields(line)[1]
	if verb == "run" || verb == "runp" || verb == "apply" {
		n.clear()
		return
	}
	running := n.must("ps", "-q", "--name", "^web$", "--pod", pods[0])
	switch {
	case running == "" || verb == "start":
		if old := n.must("ps", "-aq", "--name", "^web$", "--pod", pods[0]); old != "" {
			n.must("rm", "-f", old)
		}
		running = n.must("create", pods[0], "main.json", "pod.json")
		if verb != "start" {
			n.must("start", running)
		}
	}
	switch {
	case line == "crishim rm web", line == "crishim wait web", strings.HasPrefix(line, "crishim wait --exit-code"), strings.HasPrefix(line, "crishim logs -f"):
		n.must("wait", "--for", "log=hello", running)
		n.must("stop", "-t", "2", running)
	case line == "crishim rmp web":
		n.must("stopp", pods[0])
	}
}

// changing are the verbs that want another node, or leave another one behind.
var changing = []string{"apply", "delete", "describe", "run", "runp", "create", "start", "stop", "stopp", "rm", "rmp", "wait", "logs", "update"}

// onlySaid are examples that would take away what is not the test's.
var onlySaid = []string{"crishim rmi busybox", "crishim stop --all", "crishim rmp --all --force", "crishim gc --dead-pods --max-per-container 0"}

func isOnlySaid(line string) bool {
	return slices.Contains(onlySaid, line) || strings.Contains(line, " --dry-run")
}

// TestHelpExamplesOnEngine runs the examples of each verb that changes the node on a node of their own, and
// the others on one.
func TestHelpExamplesOnEngine(t *testing.T) {
	t.Parallel()
	enginetest.Require(t)
	lines := map[string][]string{}
	everyCommand(testApp(), func(name string, command *urfave.Command) {
		verb, _, _ := strings.Cut(name, " ")
		for _, line := range examples(command.Description) {
			both := false
			for _, scripts := range []map[string]string{elsewhere, elsewhereOnEngine} {
				for _, key := range []string{verb, line} {
					if script, ok := scripts[key]; ok {
						both = true
						runsIn(t, script, verb)
					}
				}
			}
			if both {
				continue
			}
			node := verb
			if !slices.Contains(changing, verb) {
				node = "reading"
			}
			lines[node] = append(lines[node], line)
		}
	})
	for verb, lines := range lines {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			n := newRealNode(t)
			for _, line := range lines {
				args := words(crishimIn(line))
				n.ready(line)
				if isOnlySaid(line) {
					args = append(args, "--dry-run")
				}
				r := n.run(args...)
				if r.code != 0 && (args[1] != "doctor" || r.out == "") { // which may well find something on this machine
					t.Errorf("%s: exit %d\n%s", line, r.code, r.err)
				}
			}
		})
	}
}
