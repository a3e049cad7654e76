package verbs

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

// hostile is what a container may have in its name, labels and messages: it
// clears the screen, sets the title, ends the text, turns the direction of
// writing, ends the line to begin another in crishim's name, and goes on and on.
const hostile = "x\x1b[2J\x1b]0;t\x07\x00\u202etxt.exe\u2066\u009b31m\x7f\b\r\nhint: forged\n  crishim: forged\rusage: forged\n"

// hostileNode is a faultNode with such a pod, container and image beside the others.
func hostileNode(t *testing.T) *commandTest {
	t.Helper()
	c := faultNode(t)
	name := hostile + strings.Repeat("y", 10_000)
	pod := c.stub.AddPod(name, name, func(p *runtimeapi.PodSandboxConfig) {
		p.Labels, p.Annotations, p.Hostname = map[string]string{name: name}, map[string]string{name: name}, name
	})
	c.stub.AddContainer(pod, name, func(o *runtimeapi.ContainerConfig) {
		o.Labels, o.Annotations = map[string]string{name: name, "io.kubernetes.pod.name": name}, map[string]string{name: name}
		o.Envs = []*runtimeapi.KeyValue{{Key: name, Value: []byte(name)}}
		o.Image = &runtimeapi.ImageSpec{Image: "busybox", UserSpecifiedImage: name}
		o.LogPath = name
	})
	c.stub.AddImage(name + ":" + name)
	return c
}

// rawIn is the first character of a text that could do something to a terminal.
func rawIn(text string) (rune, bool) {
	for i, r := range text {
		switch {
		case r == '\n', r == '\t':
		case r < ' ', r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f:
			return r, true
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd"):
			return r, true
		}
	}
	return 0, false
}

func (r result) harmless(t *testing.T, what string) {
	t.Helper()
	for line := range strings.Lines(r.out + r.err) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " forged")
		if word == "hint:" || word == "crishim:" || word == "usage:" {
			t.Errorf("%s: somebody else's line in crishim's name: %q", what, line)
		}
	}
	for stream, text := range map[string]string{"stdout": r.out, "stderr": r.err} {
		if bad, found := rawIn(text); found {
			at := strings.IndexRune(text, bad)
			t.Errorf("%s: %U on %s: %q", what, bad, stream, text[max(0, at-40):min(len(text), at+40)])
		}
	}
}

// TestHostileTextOfEveryVerb runs every verb on a node with hostile names, and
// against a runtime whose every error is hostile.
func TestHostileTextOfEveryVerb(t *testing.T) {
	for verb, line := range faultLines(faultNode(t)) {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			if line.calls == nil && verb != "cp" { // whose output is the container's own
				hostileNode(t).run(line.args...).harmless(t, verb)
			}
			for _, method := range line.methods(t) {
				c := hostileNode(t)
				c.stub.Fail(method, status.Error(codes.Internal, hostile+strings.Repeat("z", 10_000)))
				r := c.run(line.args...)
				r.harmless(t, verb+" when "+method+" fails")
				if len(r.err) > 32<<10 {
					t.Errorf("%s when %s fails: %d bytes of error", verb, method, len(r.err))
				}
			}
			arg := hostileNode(t)
			if verb != "sync" && verb != "run" { // which would go on for ever
				arg.run(verb, hostile).harmless(t, verb+" of a hostile argument")
			}
			arg.run(verb, "--"+hostile).harmless(t, verb+" with a hostile flag")
		})
	}
}

// TestHostileTextInMachineOutput: what programs read is whole and escaped.
func TestHostileTextInMachineOutput(t *testing.T) {
	t.Parallel()
	c := hostileNode(t)
	for _, args := range [][]string{
		{"ps", "-a"}, {"pods"}, {"images"}, {"stats", "-s", "1"}, {"statsp", "-s", "1"}, {"inspect", "app"}, {"inspectp", "web"},
	} {
		r := c.run(append(args, "-o", "json")...)
		r.harmless(t, strings.Join(args, " "))
		if r.code != 0 || !json.Valid([]byte(r.out)) {
			t.Errorf("%v: %d, %.200q, %s", args, r.code, r.out, r.err)
		}
		var read any
		y := c.run(append(args, "-o", "yaml")...)
		y.harmless(t, strings.Join(args, " ")+" -o yaml")
		if err := yaml.Unmarshal([]byte(y.out), &read); err != nil || y.code != 0 {
			t.Errorf("%v -o yaml: %d, %v, %s", args, y.code, err, y.err)
		}
		c.run(append(args, "-o", "jsonl")...).harmless(t, strings.Join(args, " ")+" -o jsonl")
		c.run(append(args, "-o", "go-template={{json .}}")...).harmless(t, strings.Join(args, " ")+" as a template")
	}
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(c.run("pods", "-o", "json").out), &list); err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		if strings.HasPrefix(p.Metadata.Name, hostile) {
			return
		}
	}
	t.Error("the name did not survive")
}

// TestTemplatesPrintWhatTheyAreAsked: what only a template of the user's own prints, as it is.
func TestTemplatesPrintWhatTheyAreAsked(t *testing.T) {
	c := hostileNode(t)
	for _, format := range []string{"go-template={{range .items}}{{.metadata.name}}{{end}}", "jsonpath={.items[*].metadata.name}"} {
		if r := c.run("pods", "-o", format); r.code != 0 || !strings.Contains(r.out, hostile) {
			t.Errorf("%s: got status %d, %.200q, %s", format, r.code, r.out, r.err)
		}
	}
}

// TestHostileTextAsTables looks at every way to list.
func TestHostileTextAsTables(t *testing.T) {
	t.Parallel()
	c := hostileNode(t)
	for _, args := range [][]string{
		{"ps", "-a"}, {"ps", "-a", "-o", "wide"}, {"ps", "-a", "--no-trunc"}, {"ps", "-a", "-o", "name"}, {"pods", "-o", "wide"}, {"pods", "--no-trunc"},
		{"images"}, {"images", "-o", "wide"}, {"images", "--digests"}, {"stats", "-s", "1"}, {"statsp", "-s", "1"}, {"gc", "--dry-run"}, {"rm", "-a", "-f", "--dry-run"},
	} {
		c.run(args...).harmless(t, strings.Join(args, " "))
	}
}

// TestHostileLogLines: as JSON they are escaped and read back whole.
func TestHostileLogLines(t *testing.T) {
	said := strings.ReplaceAll(hostile, "\n", "") // else it would be several
	c := faultNode(t)
	c.stub.Log(c.stub.AddContainer(c.stub.AddPod("default", "logged", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = t.TempDir() }), "said",
		func(o *runtimeapi.ContainerConfig) { o.LogPath = "said.log" }), "stdout", said)
	r := c.run("logs", "-o", "json", "said")
	r.harmless(t, "logs -o json")
	var line struct{ Log string }
	if err := json.Unmarshal([]byte(r.out), &line); err != nil || line.Log != said {
		t.Errorf("got %q, %v", line.Log, err)
	}
}
