package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/client"
)

func TestParseConfig(t *testing.T) {
	t.Parallel()
	c, err := client.ParseConfig("x", []byte(`# the node's runtime
runtime-endpoint: unix:///run/containerd/containerd.sock
image-endpoint: /run/image.sock
timeout: 10
debug: true
pull-image-on-create: true
disable-pull-on-run: false
max-retries: 5
network-plugin: cni
shim-config: /etc/crishim/shim.yaml
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"runtime-endpoint": "unix:///run/containerd/containerd.sock", "image-endpoint": "/run/image.sock", "timeout": "10",
		"debug": "true", "pull-image-on-create": "true", "disable-pull-on-run": "false", "max-retries": "5",
		"network-plugin": "cni", "shim-config": "/etc/crishim/shim.yaml",
	}
	got := map[string]string{}
	for _, key := range client.ConfigKeys() {
		if got[key], err = c.Get(key); err != nil {
			t.Error(err)
		}
		if !c.IsSet(key) {
			t.Errorf("%s is not set", key)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseConfigOdd(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, data, err string }{
		{"empty", "", ""},
		{"only a comment", "# nothing\n", ""},
		{"null", "null\n", ""},
		{"JSON", `{"timeout": 3, "debug": false}`, ""},
		{"empty values", "runtime-endpoint: \"\"\ntimeout: \n", ""},
		{"duration with unit", "timeout: 10s\n", ""},
		{"unknown key", "debug: true\nruntime_endpoint: /x\n", `config file x, line 2: unknown key "runtime_endpoint"`},
		{"a list", "- a\n", "config file x, line 1: it must be a mapping of keys to values"},
		{"no YAML", "a: [\n", "config file x: not valid YAML"},
		{"wrong bool", "debug: maybe\n", `config file x, line 1: invalid debug "maybe": must be true or false`},
		{"wrong number", "max-retries: -2\n", `line 1: invalid max-retries "-2": must be a number, 0 or more, or -1 for no end`},
		{"wrong timeout", "\ntimeout: soon\n", `line 2: invalid timeout "soon": must be a duration`},
		{"wrong endpoint", "runtime-endpoint: npipe:////./pipe/x\n", `line 1: invalid runtime-endpoint "npipe:////./pipe/x": unknown scheme "npipe"`},
		{"nested", "debug:\n  a: b\n", "line 2: debug must be a single value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := client.ParseConfig("x", []byte(tt.data))
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
		})
	}
}

func TestConfigSource(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"flag.yaml", "env.yaml", "default.yaml", "crictl.yaml"} {
		if err := os.WriteFile(path(name), []byte("timeout: 3\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := func(value string) func(string) (string, bool) {
		return func(key string) (string, bool) { return value, key == "CRI_CONFIG_FILE" && value != "" }
	}
	tests := []struct {
		name string
		in   client.ConfigSource
		want string
	}{
		{"flag first", client.ConfigSource{Path: path("flag.yaml"), LookupEnv: env(path("env.yaml"))}, "flag.yaml"},
		{"then the environment", client.ConfigSource{LookupEnv: env(path("env.yaml")), Default: path("default.yaml")}, "env.yaml"},
		{"then the default", client.ConfigSource{LookupEnv: env(""), Default: path("default.yaml"), Executable: path("crishim")}, "default.yaml"},
		{"then beside the program", client.ConfigSource{Default: path("none"), Executable: path("crishim")}, "crictl.yaml"},
		{"else the default, to be written", client.ConfigSource{Default: path("none")}, "none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := client.LoadConfig(tt.in)
			if err != nil || filepath.Base(c.Path) != tt.want {
				t.Fatalf("got %+v, %v; want %s", c, err, tt.want)
			}
			if c.IsSet("timeout") != (tt.want != "none") {
				t.Errorf("got timeout %s", c.Timeout)
			}
		})
	}
	_, err := client.LoadConfig(client.ConfigSource{Path: path("typo.yaml"), Executable: path("crishim")})
	var ce *client.ConfigError
	if !errors.As(err, &ce) || ce.Hint() == "" || !strings.Contains(err.Error(), "typo.yaml: no such file") {
		t.Errorf("a named file that is not there: got %v", err)
	}
}

// A partly applied default config would be worse than none, so a broken one is an error.
func TestBrokenDefaultConfigIsAnError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "crictl.yaml")
	for _, text := range []string{"timeout: [\n", "timeout: soon\n", "tiemout: 3\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, source := range []client.ConfigSource{{Default: path}, {Default: "/nonexistent", Executable: filepath.Join(filepath.Dir(path), "crishim")}} {
			if c, err := client.LoadConfig(source); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%q: got %+v, %v", text, c, err)
			}
		}
	}
}

func TestConfigKeepsComments(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "crictl.yaml")
	before := "# who runs here\nruntime-endpoint: /run/a.sock # for now\n\n# seconds\ntimeout: 2\n"
	if err := os.WriteFile(path, []byte(before), 0o640); err != nil {
		t.Fatal(err)
	}
	c, err := client.LoadConfig(client.ConfigSource{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"runtime-endpoint": "docker://", "debug": "1"} {
		if err := c.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Save(); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "# who runs here\nruntime-endpoint: docker:// # for now\n# seconds\ntimeout: 2\ndebug: true\n"
	if diff := cmp.Diff(want, string(after)); diff != "" {
		t.Error(diff)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o640 {
		t.Errorf("mode: got %v, %v", fi.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".crictl*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestConfigSetInOddFiles(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, before, after string }{
		{"JSON", `{"timeout": 3, "debug": false}`, `{"timeout": 3, "debug": true}` + "\n"},
		{"no value yet", "debug:\ntimeout: 3\n", "debug: true\ntimeout: 3\n"},
		{"twice", "debug: false\ndebug: 'false' # again\n", "debug: true\ndebug: true # again\n"},
		{"no last newline", "timeout: 3", "timeout: 3\ndebug: true\n"},
		{"only comments", "# here\n\n", "# here\n\ndebug: true\n"},
		{"value on the next line", "debug:\n  false\n", "debug: true\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "c.yaml")
			c, err := client.ParseConfig(path, []byte(tt.before))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(c.Set("debug", "true"), c.Save()); err != nil {
				t.Fatal(err)
			}
			after, err := os.ReadFile(path)
			if err != nil || string(after) != tt.after {
				t.Errorf("got %q, %v; want %q", after, err, tt.after)
			}
			if _, err := client.ParseConfig(path, after); err != nil {
				t.Error(err)
			}
		})
	}
}

// crictl's own tests compare the whole file.
func TestConfigAddMissing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.yaml")
	c, err := client.ParseConfig(path, []byte("# head\nimage-endpoint: \"old\" # images\n\n# seconds\ntimeout: 2\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Set("image-endpoint", "unix:///baz"), c.Set("debug", "false"), c.AddMissing(), c.Save()); err != nil {
		t.Fatal(err)
	}
	want := "# head\nimage-endpoint: \"unix:///baz\" # images\n# seconds\ntimeout: 2\ndebug: false\nruntime-endpoint: \"\"\n" +
		"pull-image-on-create: false\ndisable-pull-on-run: false\nmax-retries: 0\n"
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(after)); diff != "" {
		t.Error(diff)
	}
}

func TestConfigSetRefuses(t *testing.T) {
	t.Parallel()
	var c client.Config
	for key, value := range map[string]string{"nonsense": "1", "timeout": "soon", "runtime-endpoint": "tcp://x"} {
		var usage *client.SyntaxError
		if err := c.Set(key, value); !errors.As(err, &usage) {
			t.Errorf("%s=%s: got %v, want a SyntaxError", key, value, err)
		}
	}
	if _, err := c.Get("nonsense"); err == nil {
		t.Error("an unknown key was read")
	}
}

func TestConfigNewFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new.yaml")
	c, err := client.LoadConfig(client.ConfigSource{Default: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Set("timeout", "10s"); err != nil {
		t.Fatal(err)
	}
	if err := c.Save(); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "timeout: 10\n" {
		t.Errorf("got %q", got)
	}
}
