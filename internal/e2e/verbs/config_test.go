package verbs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/test/stubcri"
)

func TestConfigCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "crictl.yaml")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	c := &commandTest{t: t, vars: map[string]string{"CRI_CONFIG_FILE": path}}
	steps := []struct {
		args     string
		code     int
		out, err string // err is what stderr contains
	}{
		{"config --get timeout", 2, "", "must exist"},
		{"config --set timeout=10,debug=true", 0, "", ""},
		{"config --get timeout", 0, "10\n", ""},
		{"config debug", 0, "true\n", ""},
		{"config debug false", 0, "", ""},
		{"config -o name", 0, "runtime-endpoint\nimage-endpoint\ntimeout\ndebug\npull-image-on-create\ndisable-pull-on-run\nmax-retries\nnetwork-plugin\nshim-config\n", ""},
		{"config --set timeout=3,nonsense=1", 2, "", `invalid config key "nonsense": must be one of runtime-endpoint, `},
		{"config --set debug=maybe", 2, "", "must be true or false"},
		{"config --set timeout", 2, "", "must be KEY=VALUE"},
		{"config --get nonsense", 2, "", `invalid config key "nonsense": must be one of runtime-endpoint, `},
		{"config --get", 2, "", ""},
		{"config --list --get debug", 2, "", "choose one"},
		{"config timeout 3 4", 2, "", "unexpected argument"},
		{"config --get timeout", 0, "10\n", ""}, // nothing of the wrong ones was written
	}
	for _, s := range steps {
		r := c.run(strings.Fields(s.args)...)
		if r.code != s.code || r.out != s.out || !strings.Contains(r.err, s.err) {
			t.Errorf("%s: got %d, %q, %q; want %d, %q, %q", s.args, r.code, r.out, r.err, s.code, s.out, s.err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "timeout: 10\ndebug: false\n" {
		t.Errorf("the file is %q, %v", got, err)
	}
	r := c.run("config", "--columns", "key,from")
	if !strings.Contains(r.out, "max-retries") || !strings.Contains(r.out, "default") || strings.Contains(r.out, "\x1b") {
		t.Errorf("got %q", r.out)
	}
}

func TestConfigFileReachesTheCommands(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	path := filepath.Join(t.TempDir(), "crictl.yaml")
	c.vars["CRI_CONFIG_FILE"], c.vars["CONTAINER_RUNTIME_ENDPOINT"] = path, ""
	if err := os.WriteFile(path, []byte("runtime-endpoint: "+c.stub.Endpoint+"\ndebug: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := c.run("ps", "-q"); r.code != 0 || !strings.Contains(r.err, "debug: ") {
		t.Errorf("got %+v", r)
	}
	if err := os.WriteFile(path, []byte("runtime_endpoint: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := c.run("ps", "-q"); r.code != 2 || !strings.Contains(r.err, `line 1: unknown key "runtime_endpoint"`) {
		t.Errorf("got %+v", r)
	}
}
