package checks

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/crishim/crishim"

// An importRule says what packages below from may import of what matches only.
type importRule struct {
	from  string   // directory, with everything below it; "" is the whole module, "." the root alone
	of    string   // import path prefix that the rule is about
	allow []string // prefixes of it that are fine
	why   string
}

// The services of the shim meet in the shim package and in the packages they share.
var shimServices = []string{"sandbox", "container", "image", "stream", "stats", "events", "node"}

func importRules() []importRule {
	ours := func(directories ...string) []string {
		paths := make([]string, len(directories))
		for i, f := range directories {
			paths[i] = module + "/" + f
		}
		return paths
	}
	rules := []importRule{
		{".", module, ours("commands"), "main only turns commands.Main into an exit status"},
		{"commands", module, ours("commands", "internal/shellwords", "client", "internal/diagnose", "kuberuntime", "output", "shim", "internal/api", "internal/logfile", "internal/imagefile", "internal/imageref", "internal/proctree", "internal/bounded", "internal/glob", "internal/metricsserver", "internal/lazyregexp", "internal/gogc", "internal/ocierror", "internal/hostproc", "internal/overlay", "internal/rundir"), "commands sits on top and uses the public parts"},
		{"cmd", module, ours("commands", "client", "output", "internal/proctree", "internal/shellwords"), "the plugin makes nodes endpoints, and leaves everything else to commands"},
		{"client", module, ours("client", "internal/shellwords", "internal/api", "internal/imagefile", "internal/imageref", "internal/bounded", "internal/lazyregexp", "internal/proctree", "internal/rundir", "internal/frames", "internal/engine", "internal/overlay"), "client learns how to start the shim from its caller, so its tests need no Docker"},
		{"internal/diagnose", module, ours("internal/diagnose", "internal/shellwords", "client", "kuberuntime", "internal/bounded", "internal/hostproc", "internal/lazyregexp", "internal/ocierror"), "facts are collected from any runtime, and shown by the caller"},
		{"kuberuntime", module, ours("kuberuntime", "client", "internal/logfile", "internal/bounded", "internal/glob", "internal/lazyregexp", "internal/filelock", "internal/ocierror", "internal/shellwords"), "the pod runtime works on any CRI endpoint, so it may not know our shim or our views"},
		{"internal/logfile", module, ours("internal/logfile", "internal/bounded", "internal/lazyregexp"), "log files are read for commands and for the pod runtime, and know neither"},
		{"internal/imagefile", module, ours("internal/imagefile", "internal/imageref", "internal/bounded"), "archives of images are those of any runtime"},
		{"commands/node/bundle", module, ours("commands/node/bundle", "client", "output", "internal/logfile", "internal/bounded", "internal/lazyregexp"), "a bundle is collected by parts, and verbs add parts of their own"},
		{"commands/cli/argv", module, ours("commands/cli/argv", "client/suggest", "internal/shellwords"), "argv orders words by tables: words in, words out"},
		{"commands/cli/argv", "os", nil, "argv touches no files: the caller says which words are"},
		{"client/auth", module, ours("client/auth", "internal/bounded", "internal/proctree"), "credentials are found without a connection"},
		{"client/containerd", module, ours("client/containerd", "internal/imagefile", "internal/imageref", "internal/overlay", "internal/proctree"), "a containerd is used over a connection that it is given"},
		{"client/loopback", module, ours("client/loopback", "internal/imagefile"), "the registry is given who pulls from it"},
		{"client/stream", module, ours("client/stream", "internal/frames"), "a session is given its URL, whoever asked for it"},
		{"output", module, ours("output"), "output turns messages into bytes and knows nothing else of ours"},
		{"internal/api", module, ours("internal/api"), "both ends of the private service import it"},
		{"shim", module, ours("shim", "internal/api", "internal/imageref", "internal/bounded", "internal/glob", "internal/lazyregexp", "internal/filelock", "internal/proctree", "internal/metricsserver", "internal/rundir", "internal/frames", "internal/ocierror", "internal/webguard", "internal/engine", "internal/overlay"), "the shim stands alone: nothing above it may leak into it"},
		{"shim/private", module + "/shim", ours("shim/private", "shim/container", "shim/image", "shim/stream", "shim/logs", "shim/state"), "the private service calls the others, and no other calls it"},
		{"shim/metrics", module + "/shim", ours("shim/metrics", "shim/docker", "shim/network"), "metrics are given what they count"},
		{"shim/convert", module, ours("shim/convert", "internal/imageref"), "conversions are pure: values in, values out"},

		{"", "k8s.io/cli-runtime", nil, "crishim stays small: only the plugin for kubectl speaks to an API server"},
		{"", "k8s.io/client-go/kubernetes", nil, "crishim stays small: only the plugin for kubectl speaks to an API server"},
		{"", "github.com/urfave/cli", nil, "the command line library stays in commands"},
		{"", "github.com/olekukonko/tablewriter", nil, "tables are made in output/table.go and nowhere else"},
		{"", "github.com/docker/docker/client", nil, "only shim/docker builds the engine client; others declare the roles they need"},
		{"", "go.opentelemetry.io/otel/sdk", nil, "spans are collected and sent in one place; others are given a tracer"},
		{"", "go.opentelemetry.io/otel/exporters", nil, "spans are collected and sent in one place; others are given a tracer"},
		{"", "charm.land", nil, "screens are drawn in commands/node/top and commands/cli/live"},
		{"", "github.com/charmbracelet", nil, "screens are drawn in commands/node/top and commands/cli/live"},
		{"", "github.com/moby/term", nil, "terminals are handled in client/stream; kubectl's exec is another"},
		{"client", "github.com/docker/docker", nil, "Docker types stop at the shim: the client sees CRI"},
		{"commands", "github.com/docker/docker", nil, "Docker types stop at the shim: commands see CRI"},
		{"output", "github.com/docker/docker", nil, "Docker types stop at the shim: output sees CRI"},
		{"kuberuntime", "github.com/docker/docker", nil, "Docker types stop at the shim: the pod runtime sees CRI"},
	}
	for _, noun := range []string{"cli", "container", "pod", "image", "node", "manifest"} {
		rules = append(rules, importRule{
			"commands/" + noun, module + "/commands", ours("commands/cli", "commands/"+noun),
			"a directory of verbs imports what all verbs share, and no other directory",
		})
	}
	for _, part := range []string{"bounded", "engine", "filelock", "frames", "glob", "gogc", "hostproc", "imageref", "kube", "lazyregexp", "metricsserver", "ocierror", "overlay", "proctree", "rundir", "shellwords", "webguard"} {
		rules = append(rules, importRule{
			"internal/" + part, module, ours("internal/bounded", "internal/filelock", "internal/hostproc", "internal/lazyregexp", "internal/proctree", "internal/webguard"),
			"what everybody shares imports nobody",
		})
	}
	for _, part := range []string{"container/archive", "container/procroot", "node/checkup"} {
		rules = append(rules, importRule{
			"commands/" + part, module + "/commands", ours("commands/" + part),
			"what one verb is made of knows no command line",
		})
	}
	for _, service := range shimServices {
		rules = append(rules, importRule{
			"shim/" + service, module + "/shim",
			ours("shim/"+service, "shim/state", "shim/network", "shim/logs", "shim/host", "shim/convert", "shim/internal", "shim/pause",
				"shim/docker"), // its aliases stand for the client library's option types
			"the services of the shim never import each other, so that each can be read and tested alone",
		})
	}
	return rules
}

// homes are the places that a module-wide rule does not hold for.
var homes = map[string][]string{
	"k8s.io/cli-runtime":                 {"cmd/kubectl-crishim"},
	"k8s.io/client-go/kubernetes":        {"cmd/kubectl-crishim", "internal/test/kubeapi"},
	"github.com/urfave/cli":              {"commands", "hack/docs", "internal/e2e/verbs"},
	"github.com/olekukonko/tablewriter":  {"output/table.go", "output/table_test.go"},
	"github.com/docker/docker/client":    {"shim/docker"},
	"go.opentelemetry.io/otel/sdk":       {"commands/cli/tracing.go"},
	"go.opentelemetry.io/otel/exporters": {"commands/cli/tracing.go"},
	"charm.land":                         {"commands/node/top", "commands/cli/live"},
	"github.com/charmbracelet":           {"commands/node/top", "commands/cli/live"},
	"github.com/moby/term":               {"client/stream"},
}

// TestImportRules holds the layout of docs/architecture.md: who may import whom, and where
// each heavy dependency lives.
func TestImportRules(t *testing.T) {
	rules := importRules()
	for file, imports := range sources(t) {
		for _, path := range imports {
			for _, r := range rules {
				if r.forbids(file, path) {
					t.Errorf("%s imports %s: %s", file, path, r.why)
				}
			}
		}
	}
}

func TestImportRulesBite(t *testing.T) {
	for _, c := range []struct {
		file, path string
		forbidden  bool
	}{
		{"main.go", module + "/commands", false},
		{"main.go", module + "/shim", true},
		{"output/table.go", "github.com/olekukonko/tablewriter/tw", false},
		{"output/pods.go", "github.com/olekukonko/tablewriter", true},
		{"output/pods.go", module + "/client", true},
		{"output/pods.go", module + "/internal/kube", false},
		{"main.go", module + "/internal/kube", true},
		{"client/dial.go", module + "/shim", true},
		{"client/stream/terminal.go", "github.com/moby/term", false},
		{"shim/sandbox/run.go", module + "/shim/state", false},
		{"shim/sandbox/run.go", module + "/shim/container", true},
		{"shim/sandbox/run.go", "github.com/docker/docker/client", true},
		{"shim/sandbox/run.go", "github.com/docker/docker/api/types/container", false},
		{"shim/sandbox/run_test.go", module + "/shim/docker", false},
		{"client/connect_test.go", module + "/internal/test/stubcri", false},
		{"client/dial.go", module + "/internal/test/stubcri", true},
		{"shim/wiring.go", module + "/shim/container", false},
		{"shim/node/watch.go", module + "/shim/cache", true},
		{"shim/private/private.go", module + "/shim/stream", false},
		{"kuberuntime/sync.go", "github.com/docker/docker/api/types", true},
		{"kuberuntime/logs.go", module + "/internal/logfile", false},
		{"commands/pod/rmp.go", module + "/commands/cli/crifile", false},
		{"commands/pod/rmp.go", module + "/commands/container", true},
		{"commands/cli/run.go", module + "/commands/node", true},
		{"internal/logfile/read.go", module + "/kuberuntime", true},
		{"client/stream/session.go", module + "/client", true},
		{"internal/rundir/rundir.go", module + "/internal/bounded", false},
		{"internal/rundir/rundir.go", module + "/client", true},
		{"internal/hostproc/socket.go", module + "/commands/cli", true},
	} {
		forbidden := false
		for _, r := range importRules() {
			forbidden = forbidden || r.forbids(c.file, c.path)
		}
		if forbidden != c.forbidden {
			t.Errorf("%s imports %s: forbidden is %v, want %v", c.file, c.path, forbidden, c.forbidden)
		}
	}
}

func (r importRule) forbids(file, path string) bool {
	if !under(path, r.of) || !r.covers(file) || r.excuses(file, path) {
		return false
	}
	for _, a := range r.allow {
		if under(path, a) {
			return false
		}
	}
	return true
}

func (r importRule) covers(file string) bool {
	switch r.from {
	case "":
		return true
	case ".":
		return !strings.Contains(file, "/")
	default:
		return under(file, r.from)
	}
}

// excuses: the names of labels, which everyone shares, a dependency's home, tests on the
// real engine, which need a real client, tests on the in-memory runtime, which anything that
// talks CRI may use, and tests that cannot run everywhere.
func (r importRule) excuses(file, path string) bool {
	if r.from != "." && path == module+"/internal/kube" {
		return true
	}
	for _, h := range homes[r.of] {
		if r.from == "" && under(file, h) {
			return true
		}
	}
	if !strings.HasSuffix(file, "_test.go") && !under(file, "internal/test") {
		return false
	}
	return under(path, "github.com/docker/docker/client") || under(path, module+"/shim/docker") ||
		under(path, module+"/internal/test")
}

func under(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// skips are the tests that may be left out without notice, by the reason that they give: what
// no package can mend. All others end with test.Missing, which fails in CI.
var skips = []string{
	"CRISHIM_NO_ENGINE is 1", "SOAK=5m", "long", // somebody wants it so
	"cgroup v2", "no FUSE here", "no IPv6 loopback", "this host forbids it", // properties of the kernel and its limits
	"not on a unix socket", "not behind a unix socket", "engine on a unix socket", // of the engine that was given
	"kubenet is in use",
	"the engine cannot mount images",
	"hack/arm64.sh runs this", // which make verify does
	`"no " + shell`,           // zsh and fish, which nothing installs
}

func TestNoTestIsLeftOutUnnoticed(t *testing.T) {
	for file := range sources(t) {
		if !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(file, "internal/test/") || file == "internal/test/test.go" {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			call := strings.TrimSpace(line)
			allowed := slices.ContainsFunc(skips, func(why string) bool { return strings.Contains(call, why) })
			if strings.HasPrefix(call, "t.Skip") && !allowed {
				t.Errorf("%s: %s: test.Missing, or a line in skips", file, call)
			}
		}
	}
}

// TestWhatRunsWithoutTheRaceDetectorExists: hack/test.sh leaves these out of every package's tests with -skip,
// and runs those of internal/e2e/verbs only.
func TestWhatRunsWithoutTheRaceDetectorExists(t *testing.T) {
	script, err := os.ReadFile("hack/test.sh")
	if err != nil {
		t.Fatal(err)
	}
	texts := regexp.MustCompile(`(?m)^texts='\^Test\((.*)\)\$'$`).FindSubmatch(script)
	if texts == nil {
		t.Fatal("hack/test.sh has no such list")
	}
	directories := map[string][]string{}
	test := regexp.MustCompile(`(?m)^func Test(\w+)\(`)
	for file := range sources(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range test.FindAllSubmatch(text, -1) {
			directories[string(match[1])] = append(directories[string(match[1])], filepath.Dir(file))
		}
	}
	for name := range strings.SplitSeq(string(texts[1]), "|") {
		if !slices.Equal(directories[name], []string{"internal/e2e/verbs"}) {
			t.Errorf("Test%s is in %q, want it in internal/e2e/verbs only", name, directories[name])
		}
	}
}

// sources maps each Go file of the module to what it imports.
func sources(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			files[filepath.ToSlash(name)] = append(files[filepath.ToSlash(name)], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
