package verbs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// completed are the values that completion offers for a line's words.
func (c *commandTest) completed(words ...string) []string {
	c.t.Helper()
	r := c.run(append([]string{"__complete"}, words...)...)
	if r.code != 0 || r.err != "" {
		c.t.Errorf("%v: got %+v", words, r)
	}
	var out []string
	for line := range strings.Lines(r.out) {
		value, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		out = append(out, value)
	}
	return out
}

func completionNode(t *testing.T) (*commandTest, map[string]string) {
	c := withStub(t, stubcri.Options{})
	ids := map[string]string{}
	ids["web"] = c.stub.AddPod("shop", "web")
	ids["db"] = c.stub.AddPod("default", "db")
	ids["nginx"] = c.stub.AddContainer(ids["web"], "nginx")
	ids["new"] = c.stub.AddCreated(ids["web"], "new")
	ids["gone"] = c.stub.AddContainer(ids["db"], "gone")
	c.stub.Exit(ids["gone"], 1)
	c.stub.AddImage("registry.example:5000/app:1")
	return c, ids
}

func TestComplete(t *testing.T) {
	t.Parallel()
	c, ids := completionNode(t)
	other := stubcri.Start(t, stubcri.Options{})
	other.AddContainer(other.AddPod("default", "p"), "elsewhere")
	tests := []struct {
		words []string
		want  []string
	}{
		{[]string{"port"}, []string{"port-forward"}},
		{[]string{"-D", "run"}, []string{"run", "runp", "runtime-config"}},
		{[]string{"help", "inspecti"}, []string{"inspecti"}},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish"}},
		{[]string{"config", "--get", "run"}, []string{"runtime-endpoint"}},
		{[]string{"ps", "--no-t"}, []string{"--no-trunc"}},
		{[]string{"ps", "--connect-t"}, []string{"--connect-timeout"}},
		{[]string{"ps", "-o", "js"}, []string{"json", "jsonl", "jsonpath="}},
		{[]string{"ps", "--output=ya"}, []string{"--output=yaml"}},
		{[]string{"ps", "--state", ""}, []string{"created", "running", "exited", "unknown"}},
		{[]string{"pods", "--state", ""}, []string{"ready", "notready"}},
		{[]string{"exec", ""}, []string{"nginx"}},
		{[]string{"exec", "-it", "n"}, []string{"nginx"}},
		{[]string{"exec", "nginx", ""}, []string{":files"}},
		{[]string{"exec", "w"}, []string{"web/nginx"}},
		{[]string{"logs", "w"}, []string{"web/new", "web/nginx"}},
		{[]string{"logs", "d"}, []string{"db/gone"}},
		{[]string{"logs", "--all-containers", ""}, []string{"db", "web"}},
		{[]string{"logs", "-f", "--all-containers", "shop/"}, []string{"shop/web"}},
		{[]string{"logs", "web", "-c", "n"}, []string{"new", "nginx"}},
		{[]string{"logs", "-c", "n"}, []string{"new", "nginx"}},
		{[]string{"exec", "-n", "sh"}, []string{"shop"}},
		{[]string{"ps", "-n", ""}, []string{"default", "shop"}},
		{[]string{"attach", "--namespace", "sh"}, []string{"shop"}},
		{[]string{"start", ""}, []string{"new"}},
		{[]string{"logs", ""}, []string{"gone", "new", "nginx"}},
		{[]string{"rm", "gone", "n"}, []string{"new", "nginx"}},
		{[]string{"inspect", "web/"}, []string{"web/new", "web/nginx"}},
		{[]string{"inspect", "shop/web/ne"}, []string{"shop/web/new"}},
		{[]string{"inspect", ids["gone"][:6]}, []string{ids["gone"][:13]}},
		{[]string{"stopp", ""}, []string{"db", "web"}},
		{[]string{"describe", "w"}, []string{"web"}},
		{[]string{"why", "w"}, []string{"web", "web/new", "web/nginx"}},
		{[]string{"why", "ng"}, []string{"nginx"}},
		{[]string{"delete", "shop/"}, []string{"shop/web"}},
		{[]string{"wait", "--for", "r"}, []string{"running", "removed", "ready"}},
		{[]string{"ps", "--columns", "name,po"}, []string{"name,pod-id", "name,pod", "name,ports"}},
		{[]string{"ps", "--columns", "pod,po"}, []string{"pod,pod-id", "pod,ports"}},
		{[]string{"ps", "--columns=pod,po"}, []string{"--columns=pod,pod-id", "--columns=pod,ports"}},
		{[]string{"kill", "-s", "U"}, []string{"USR1", "USR2"}},
		{[]string{"rm", "new", "n"}, []string{"nginx"}},
		{[]string{"stats", "--sort", "c"}, []string{"container", "cpu"}},
		{[]string{"logs", "--stream", ""}, []string{"stdout", "stderr"}},
		{[]string{"logs", "-o", ""}, []string{"text", "json"}},
		{[]string{"debug", "--profile", "s"}, []string{"sys"}},
		{[]string{"cp", "ng"}, []string{"nginx", ":files"}},
		{[]string{"cp", "/etc/host"}, []string{":files"}},
		{[]string{"rmp", "shop/"}, []string{"shop/web"}},
		{[]string{"ps", "--pod", "w"}, []string{"web"}},
		{[]string{"ps", "--namespace", ""}, []string{"default", "shop"}},
		{[]string{"rmi", "busy"}, []string{"busybox:latest"}},
		{[]string{"rmi", "registry.example:5"}, []string{"registry.example:5000/app:1"}},
		{[]string{"-r", other.Endpoint, "exec", ""}, []string{"elsewhere"}},
		{[]string{"--runtime-endpoint=" + other.Endpoint, "exec", ""}, []string{"elsewhere"}},
		{[]string{"-r", "/nonexistent.sock", "exec", ""}, nil},
		{[]string{"-r", "npipe://x", "exec", ""}, nil},
		{[]string{"-r", "docker:"}, []string{"docker://"}},
		{[]string{"nosuchverb", ""}, nil},
		{[]string{"runp", ""}, []string{"jsonschema", ":files"}},
		{[]string{"run", "busy"}, []string{"busybox:latest", ":files"}},
		{[]string{"create", ""}, []string{"jsonschema", "db", "web"}},
		{[]string{"create", "web", ""}, []string{":files"}},
		{[]string{"images", "busy"}, []string{"busybox:latest"}},
		{[]string{"wait", "w"}, []string{"web", "web/new", "web/nginx"}},
		{[]string{"ps", ""}, nil},
		{[]string{"who", ""}, nil},
		{[]string{"port-forward", "web", ""}, nil},
		{[]string{"apply", ""}, []string{":files"}},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.words, " "), func(t *testing.T) {
			got := c.completed(tt.words...)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := c.completed(); len(got) < 30 {
		t.Errorf("got only %v", got)
	}
}

// Completion offers the ID for a name that cannot be typed: control characters would change the name on the line, and a
// leading dash would make it a flag.
func TestCompleteNamesThatCannotBeTyped(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"evil\x1b[2J\nname", "--all", "-f", ":files", "a\tb", "\u202eabc"} {
		c := withStub(t, stubcri.Options{})
		pod := c.stub.AddPod("default", name)
		ctr := c.stub.AddContainer(pod, "x", func(config *runtimeapi.ContainerConfig) { config.Metadata.Name = name })
		if diff := cmp.Diff([]string{ctr[:13]}, c.completed("exec", "")); diff != "" {
			t.Errorf("container %q: %s", name, diff)
		}
		if diff := cmp.Diff([]string{pod[:13]}, c.completed("rmp", "")); diff != "" {
			t.Errorf("pod %q: %s", name, diff)
		}
		for _, words := range [][]string{{"exec", ""}, {"rmp", ""}} {
			if r := c.run(append([]string{"__complete"}, words...)...); strings.ContainsAny(r.out, "\x1b\u202e") || strings.Count(r.out, "\n") != 1 {
				t.Errorf("%q: got %q", name, r.out)
			}
		}
	}
}

func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	c := &commandTest{t: t}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		r := c.run("completion", shell)
		if r.code != 0 || !strings.Contains(r.out, "__complete") || strings.Contains(r.out, "NAME") {
			t.Errorf("%s: got %+v", shell, r)
		}
	}
	if r := c.runAs(t.Context(), "crictl", "completion"); !strings.Contains(r.out, "complete -F _crishim crictl") {
		t.Errorf("got %s", r.out)
	}
	if r := c.run("completion", "tcsh"); r.code != 2 {
		t.Errorf("got %+v", r)
	}
}

// A name that several containers have would be refused, so that what tells them apart is
// offered in its place.
func TestCompleteNamesThatAreThereTwice(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	for _, pod := range [][2]string{{"dev", "web"}, {"prod", "web"}, {"prod", "db"}} {
		id := c.stub.AddPod(pod[0], pod[1])
		c.stub.AddContainer(id, "main")
		if pod[1] == "db" {
			c.stub.AddContainer(id, "backup")
		}
	}
	for word, want := range map[string][]string{
		"":         {"backup", "db/main", "dev/web/main", "prod/web/main"},
		"m":        {"main"},
		"d":        {"db/backup", "db/main", "dev/web/main"},
		"prod/":    {"prod/db/backup", "prod/db/main", "prod/web/main"},
		"web/":     {"web/main"},
		"prod/web": {"prod/web/main"},
	} {
		if diff := cmp.Diff(want, c.completed("exec", word)); diff != "" {
			t.Errorf("%q: %s", word, diff)
		}
	}
}

func TestEveryVerbWithArgumentsCompletesThem(t *testing.T) {
	t.Parallel()
	in := cli.NewInvocation(testProcess(), false)
	for _, group := range commands.Groups() {
		for _, verb := range group.Verbs {
			if v := verb.Build(in); (v.ArgsUsage != "") != (v.Args != nil) {
				t.Errorf("%s: its arguments are %q, but Args is set: %t", verb.Names[0], v.ArgsUsage, v.Args != nil)
			}
		}
	}
}
