package commands

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

// readServe runs serve's flags up to the options.
func readServe(t *testing.T, config string, args ...string) (o serveOptions, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "serve.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	env := &Env{LookupEnv: func(string) (string, bool) { return "", false }}
	// The library has one help flag, to which every app writes.
	app := &cli.App{HideHelp: true, Flags: serveFlags(), Action: func(c *cli.Context) (err error) {
		o, err = serveOptionsOf(env, c)
		return err
	}}
	err = app.RunContext(context.Background(), append([]string{"serve", "--config-file", path}, args...))
	return o, err
}

func TestServeTakesFlagsFromAFile(t *testing.T) {
	t.Parallel()
	o, err := readServe(t, `
listen: unix:///tmp/other.sock
link-logs: true
network-plugin-mtu: 1400
image-pull-progress-deadline: 2m
cgroup-driver: systemd
cni-bin-dir: [/a, /b]
`, "--cgroup-driver", "cgroupfs")
	if err != nil {
		t.Fatal(err)
	}
	if o.listen != "unix:///tmp/other.sock" || o.shim.WriteLogs || o.shim.Network.MTU != 1400 || o.shim.PullProgressDeadline != 2*time.Minute {
		t.Errorf("got %+v", o)
	}
	if o.shim.CgroupDriver != "cgroupfs" {
		t.Errorf("the file wins over the command line: got %s", o.shim.CgroupDriver)
	}
	if diff := cmp.Diff([]string{"/a", "/b"}, o.shim.Network.BinDirs); diff != "" {
		t.Errorf("a list: %s", diff)
	}
}

func TestServeReadsLargeNumbers(t *testing.T) {
	t.Parallel()
	o, err := readServe(t, "network-plugin-mtu: 1500000")
	if err != nil || o.shim.Network.MTU != 1500000 {
		t.Errorf("got %d, %v", o.shim.Network.MTU, err)
	}
}

func TestServeRefusesABadFile(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		"nosuch: 1":                        `serve has no flag "nosuch"`,
		"config-file: x":                   `serve has no flag "config-file"`,
		"listen: {a: b}":                   "listen: want a text, a number, true or false, or a list of those",
		"network-plugin-mtu: many":         "network-plugin-mtu: ",
		"cgroup-driver: other":             `--cgroup-driver "other": want cgroupfs or systemd`,
		"listen: a\nlisten: b":             "already set",
		"- listen":                         "serve.yaml: ",
		"non-masquerade-cidr: 10.0.0.0/8":  "--non-masquerade-cidr is obsolete",
		"image-pull-progress-deadline: 1y": "image-pull-progress-deadline: ",
	} {
		if _, err := readServe(t, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", config, err, want)
		}
	}
}
