package verbs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// TestDifferential runs command lines as crictl, once by name and once by
// --compat, each on a node of its own that is in the same state, and compares
// standard output and status. If CRICTL names crictl's binary, both are
// compared with it (make differential).
func TestDifferential(t *testing.T) {
	crictl := os.Getenv("CRICTL")
	if crictl == "" {
		t.Log("CRICTL does not name a crictl binary: crishim is compared with itself only")
	} else if out, err := exec.CommandContext(t.Context(), crictl, "--version").Output(); err != nil || !bytes.HasPrefix(out, []byte("crictl version ")) {
		t.Fatalf("CRICTL=%s is no crictl: its --version says %q (%v)", crictl, out, err)
	}
	born := time.Now().Add(-90 * time.Minute)
	lines := differentialLines
	for verb := range crictlVerbs { // their headings
		lines = append(lines, differentialLine{strings.Split(verb, "/")[0] + " --help", ""})
	}
	for _, test := range lines {
		t.Run(test.line, func(t *testing.T) {
			t.Parallel()
			byName := differentialNode(t, born).run(test.line, asCrishim("crictl"))
			byFlag := differentialNode(t, born).run(test.line, asCrishim("crishim", "--compat=crictl"))
			isYAML := strings.Contains(test.line, " yaml")
			if diff := byName.diff(byFlag, isYAML); diff != "" {
				t.Errorf("--compat differs from argv[0] (-argv[0] +compat):\n%s%s", diff, byFlag.err)
			}
			if crictl == "" {
				return
			}
			theirs := differentialNode(t, born).run(test.line, asBinary(crictl))
			switch diff := theirs.diff(byName, isYAML); {
			case diff != "" && test.why == "":
				t.Errorf("crishim differs (-crictl +crishim):\n%s-- crictl's stderr --\n%s-- crishim's stderr --\n%s", diff, theirs.err, byName.err)
			case diff == "" && test.why != "":
				t.Errorf("crishim does not differ, although: %s", test.why)
			}
		})
	}
}

// node is what a command line is run on.
type machine struct {
	t    *testing.T
	stub *stubcri.Server
	vars *strings.Replacer
	now  time.Time
}

// differentialNode makes the same node, down to the ids, each time.
func differentialNode(t *testing.T, born time.Time) *machine {
	t.Helper()
	dir := t.TempDir()
	s := stubcri.Start(t, stubcri.Options{Now: func() time.Time { return born }})
	labels := func(pod, namespace string) map[string]string {
		return map[string]string{kube.LabelPodName: pod, kube.LabelPodNamespace: namespace, "app": pod}
	}
	add := func(pod, name string, labels map[string]string) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) { c.Labels, c.LogPath = labels, name+".log" }
	}
	web := s.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) {
		p.Labels, p.LogDirectory = labels("web", "default"), filepath.Join(dir, "logs")
	})
	db := s.AddPod("prod", "db", func(p *runtimeapi.PodSandboxConfig) { p.Labels = labels("db", "prod") })
	nginx := s.AddContainer(web, "nginx", add(web, "nginx", labels("web", "default")))
	ended := s.AddContainer(web, "migrate", add(web, "migrate", labels("web", "default")))
	for _, line := range []string{"one", "two <&>", "three"} {
		s.Log(nginx, "stdout", line)
		s.Log(ended, "stderr", line)
	}
	s.Exit(ended, 3)
	created := s.AddCreated(db, "postgres", func(c *runtimeapi.ContainerConfig) { c.Labels = labels("db", "prod") })
	app := s.AddImage("registry.example.com/app:v1", "registry.example.com/app:latest")
	s.AddImage("registry.k8s.io/pause:3.9")
	s.Image("registry.k8s.io/pause:3.9", func(i *runtimeapi.Image) { i.Pinned = true })
	for name, text := range map[string]string{
		"pod.json":       `{"metadata": {"name": "made", "namespace": "default", "uid": "u", "attempt": 1}, "linux": {"cgroup_parent": "x"}}`,
		"container.json": `{"metadata": {"name": "c"}, "image": {"image": "busybox"}, "command": ["true"]}`,
		"broken.json":    `{"metadata": {`,
		"crictl.yaml":    "runtime-endpoint: " + s.Endpoint + "\ntimeout: 7\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &machine{t: t, stub: s, now: born.Add(90 * time.Minute), vars: strings.NewReplacer(
		"$WEB", web, "$DB", db, "$NGINX", nginx, "$ENDED", ended, "$CREATED", created, "$APP", app, "$DIR", dir)}
}

// inAnyOrder are the lines whose work is done side by side, and printed as it is done.
var inAnyOrder = regexp.MustCompile(`^(rm|rmp|rmi|pull a|start|stop|stopp|update|kill|pause|unpause) `)

var shellWord = regexp.MustCompile(`'[^']*'|\S+`)

// run runs one line and makes what it ended with comparable.
func (n *machine) run(line string, program func(n *machine, args []string) result) result {
	n.t.Helper()
	args := []string{"--config", n.vars.Replace("$DIR/crictl.yaml")}
	for _, word := range shellWord.FindAllString(line, -1) {
		args = append(args, n.vars.Replace(strings.Trim(word, "'")))
	}
	r := program(n, args)
	if inAnyOrder.MatchString(line) && !strings.Contains(r.out, helpPage) {
		lines := slices.Sorted(strings.Lines(r.out))
		r.out = strings.Join(lines, "")
	}
	r.out = strings.ReplaceAll(r.out, n.stub.Endpoint, "ENDPOINT")
	r.out = strings.ReplaceAll(r.out, n.vars.Replace("$DIR"), "DIR")
	return r
}

// asCrishim runs the line in this process.
func asCrishim(argv ...string) func(*machine, []string) result {
	return func(n *machine, args []string) result {
		var out, errs test.Buffer
		env := &cli.Process{
			In: strings.NewReader(""), Out: &out, Err: &errs, Version: "v0.0.0-test",
			LookupEnv: func(string) (string, bool) { return "", false },
			Now:       func() time.Time { return n.now }, StatsSecond: 10 * time.Millisecond,
		}
		return result{commands.Main(n.t.Context(), append(argv[:len(argv):len(argv)], args...), env), out.String(), errs.String()}
	}
}

// asBinary runs it in a process of its own.
func asBinary(path string) func(*machine, []string) result {
	return func(n *machine, args []string) result {
		ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
		defer cancel()
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = []string{"TZ=UTC", "PATH=" + os.Getenv("PATH")}, &out, &errs
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			n.t.Fatal(err)
		}
		return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	}
}

// helpPage begins a help page.
const helpPage = "NAME:\n"

// diff compares JSON and YAML as values, tables by their cells, a help page
// by its heading, and all else as it is.
func (r result) diff(other result, isYAML bool) string {
	return cmp.Diff(fmt.Sprint("exit ", r.code), fmt.Sprint("exit ", other.code)) + cmp.Diff(r.value(isYAML), other.value(isYAML))
}

var cellGap = regexp.MustCompile(` {2,}|\t+`)

func (r result) value(isYAML bool) any {
	if before, page, help := strings.Cut(r.out, helpPage); help {
		heading, _, _ := strings.Cut(page, "\n")
		heading, _, _ = strings.Cut(heading, ". ") // the first sentence
		heading, _, _ = strings.Cut(heading, " jsonschema - ")
		return before + "the help page of " + strings.TrimSpace(heading)
	}
	if documents, err := jsonDocuments(r.out); err == nil {
		return documents
	}
	var document any
	if isYAML && yaml.Unmarshal([]byte(r.out), &document) == nil {
		return sameVersion(document)
	}
	lines := []string{}
	for line := range strings.Lines(r.out) {
		lines = append(lines, cellGap.ReplaceAllString(strings.TrimRight(line, " \n"), " | "))
	}
	return lines
}

// sameVersion takes away where the crictl that is measured with is of another
// version of the CRI: it called signals otherwise, and showed an empty user.
func sameVersion(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "stopSignal")
		if v["user"] == nil {
			delete(v, "user")
		}
		for _, member := range v {
			sameVersion(member)
		}
	case []any:
		for _, element := range v {
			sameVersion(element)
		}
	}
	return v
}

func jsonDocuments(text string) ([]any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var documents []any
	for {
		var document any
		switch err := d.Decode(&document); {
		case errors.Is(err, io.EOF):
			return documents, nil
		case err != nil:
			return nil, err
		}
		documents = append(documents, sameVersion(document))
	}
}
