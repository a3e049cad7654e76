package node

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli"
)

// readServe parses serve's flags and configuration file into options.
func readServe(t *testing.T, config string, args ...string) (*cli.ServeOptions, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "serve.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	in := cli.NewInvocation(&cli.Process{LookupEnv: func(string) (string, bool) { return "", false }}, false)
	// HideHelp avoids a data race: all apps of the library write to one global help flag.
	o := cli.NewServeOptions()
	app := &urfave.App{HideHelp: true, Flags: o.Flags(), Action: func(c *urfave.Context) error { return serve{o, ""}.check(in, c) }}
	return o, app.RunContext(context.Background(), append([]string{"serve", "--config-file", path}, args...))
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
	if o.Listen != "unix:///tmp/other.sock" || o.Shim.WriteLogs || o.Shim.Network.MTU != 1400 || o.Shim.PullProgressDeadline != 2*time.Minute {
		t.Errorf("got %+v", o)
	}
	if o.Shim.CgroupDriver != "cgroupfs" {
		t.Errorf("the file wins over the command line: got %s", o.Shim.CgroupDriver)
	}
	if diff := cmp.Diff([]string{"/a", "/b"}, o.Shim.Network.BinDirs); diff != "" {
		t.Errorf("a list: %s", diff)
	}
}

// serveFlagValues has a value in the file for every flag of serve, and the expected value in the options.
var serveFlagValues = map[string]struct {
	value string
	got   func(*cli.ServeOptions) any
	want  any
}{
	"listen":                            {"unix:///tmp/other.sock", func(o *cli.ServeOptions) any { return o.Listen }, "unix:///tmp/other.sock"},
	"docker-endpoint":                   {"unix:///tmp/d.sock", func(o *cli.ServeOptions) any { return o.Shim.Engine.Host }, "unix:///tmp/d.sock"},
	"pod-infra-container-image":         {"registry.k8s.io/pause:3.10", func(o *cli.ServeOptions) any { return o.Shim.PauseImage }, "registry.k8s.io/pause:3.10"},
	"streaming-bind-addr":               {"127.0.0.1:10010", func(o *cli.ServeOptions) any { return o.Shim.StreamAddress }, "127.0.0.1:10010"},
	"streaming-tls-cert":                {"/tls/cert.pem", func(o *cli.ServeOptions) any { return o.Shim.StreamCertFile }, "/tls/cert.pem"},
	"streaming-tls-key":                 {"/tls/key.pem", func(o *cli.ServeOptions) any { return o.Shim.StreamKeyFile }, "/tls/key.pem"},
	"streaming-connection-idle-timeout": {"1h", func(o *cli.ServeOptions) any { return o.Shim.StreamIdleTimeout }, time.Hour},
	"non-masquerade-cidr":               {"[10.0.0.0/8, \"fd00::/8\"]", func(o *cli.ServeOptions) any { return o.Shim.Network.NonMasqueradeCIDR }, "10.0.0.0/8,fd00::/8"},
	"link-logs":                         {"true", func(o *cli.ServeOptions) any { return o.Shim.WriteLogs }, false},
	"log-level":                         {"error", func(o *cli.ServeOptions) any { return o.Shim.Log.Enabled(context.Background(), slog.LevelWarn) }, false},
	"log-format":                        {"json", func(o *cli.ServeOptions) any { return fmt.Sprintf("%T", o.Shim.Log.Handler()) }, "*slog.JSONHandler"},
	"cgroup-driver":                     {"systemd", func(o *cli.ServeOptions) any { return o.Shim.CgroupDriver }, "systemd"},
	"runtime-cgroups":                   {"/runtime.slice/docker", func(o *cli.ServeOptions) any { return o.Shim.RuntimeCgroups }, "/runtime.slice/docker"},
	"runtime-request-timeout":           {"3m", func(o *cli.ServeOptions) any { return o.Shim.Engine.RequestTimeout }, 3 * time.Minute},
	"image-pull-progress-deadline":      {"2m", func(o *cli.ServeOptions) any { return o.Shim.PullProgressDeadline }, 2 * time.Minute},
	"metrics-addr":                      {"127.0.0.1:9101", func(o *cli.ServeOptions) any { return o.Shim.MetricsAddress }, "127.0.0.1:9101"},
	"profile-socket":                    {"/p.sock", func(o *cli.ServeOptions) any { return o.Shim.ProfileSocket }, "/p.sock"},
	"network-plugin":                    {"kubenet", func(o *cli.ServeOptions) any { return o.Shim.Network.Plugin }, "kubenet"},
	"cni-conf-dir":                      {"/c", func(o *cli.ServeOptions) any { return o.Shim.Network.ConfDir }, "/c"},
	"cni-bin-dir":                       {"[/a, /b]", func(o *cli.ServeOptions) any { return strings.Join(o.Shim.Network.BinDirs, ":") }, "/a:/b"},
	"cni-cache-dir":                     {"/k", func(o *cli.ServeOptions) any { return o.Shim.Network.CacheDir }, "/k"},
	"pod-cidr":                          {"[10.244.3.0/24, \"fd03::/64\"]", func(o *cli.ServeOptions) any { return o.Shim.Network.PodCIDR }, "10.244.3.0/24,fd03::/64"},
	"network-plugin-mtu":                {"1500000", func(o *cli.ServeOptions) any { return o.Shim.Network.MTU }, 1500000},
	"hairpin-mode":                      {"hairpin-veth", func(o *cli.ServeOptions) any { return o.Shim.Network.Hairpin }, "hairpin-veth"},
}

// TestServeTakesEveryFlagFromAFile: a file with all flags sets every option.
func TestServeTakesEveryFlagFromAFile(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	for name, s := range serveFlagValues {
		fmt.Fprintf(&file, "%s: %s\n", name, s.value)
	}
	o, err := readServe(t, file.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range cli.NewServeOptions().Flags() {
		name := f.Names()[0]
		s, ok := serveFlagValues[name]
		if !ok {
			if name != cli.FlagServeConfig {
				t.Errorf("no value for --%s in this test", name)
			}
			continue
		}
		if got := s.got(o); got != s.want {
			t.Errorf("%s: %s: got %v, want %v", name, s.value, got, s.want)
		}
	}
}

// The file accepts both names of a flag. The command line takes precedence, whichever name it uses.
func TestServeTakesOtherNamesFromAFile(t *testing.T) {
	t.Parallel()
	if o, err := readServe(t, "container-runtime-endpoint: /tmp/a.sock"); err != nil || o.Listen != "/tmp/a.sock" {
		t.Errorf("got %q, %v", o.Listen, err)
	}
	for _, name := range []string{"listen", "container-runtime-endpoint"} {
		if o, err := readServe(t, name+": /tmp/a.sock", "--container-runtime-endpoint", "/tmp/b.sock"); err != nil || o.Listen != "/tmp/b.sock" {
			t.Errorf("%s: got %q, %v, want what the command line says", name, o.Listen, err)
		}
	}
}

func TestServeRefusesABadFile(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		"# mine\nnosuch: 1":                        `serve.yaml: line 2: field nosuch is unknown`,
		"config-file: x":                           `serve.yaml: line 1: field config-file is unknown`,
		"listen: {a: b}":                           "serve.yaml: line 1: listen: cannot unmarshal !!map into string",
		"\n\nnetwork-plugin-mtu: many":             "serve.yaml: line 3: network-plugin-mtu: cannot unmarshal !!str `many` into int",
		"link-logs: perhaps":                       "serve.yaml: line 1: link-logs: cannot unmarshal !!str `perhaps` into bool",
		"cgroup-driver: other":                     "serve.yaml: cgroup-driver: must be cgroupfs or systemd",
		"listen: a\nlisten: b":                     `serve.yaml: line 2: mapping key "listen" already defined at line 1`,
		"listen: a\ncontainer-runtime-endpoint: b": "serve.yaml: listen and container-runtime-endpoint are one setting",
		"- listen":                                 "serve.yaml: line 1: cannot unmarshal !!seq into",
		"listen: /a\n---\nlisten: /b":              "serve.yaml: must be one document",
		"listen: [":                                "serve.yaml: yaml: line 1: ",
		"non-masquerade-cidr: 10.0.0.0/8":          "--non-masquerade-cidr needs --network-plugin kubenet",
		"network-plugin: kubenet\nnon-masquerade-cidr: 10.0.0.0/33":              "serve.yaml: non-masquerade-cidr: \"10.0.0.0/33\": must be an address range",
		"network-plugin: kubenet\nnon-masquerade-cidr: 10.0.0.0/8,172.16.0.0/12": `invalid --non-masquerade-cidr "10.0.0.0/8,172.16.0.0/12": must be one range of IPv4 and one of IPv6 at most`,
		"streaming-connection-idle-timeout: 0s":                                  `invalid --streaming-connection-idle-timeout "0s": must be above 0`,
		"image-pull-progress-deadline: 1y":                                       "serve.yaml: line 1: image-pull-progress-deadline: must be a number of seconds",
	} {
		if _, err := readServe(t, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", config, err, want)
		}
	}
}

// The path of the records depends on the socket only, so that the next serve finds the records.
func TestExecRecordsAreBesideTheSocket(t *testing.T) {
	t.Parallel()
	elsewhere := &net.UnixAddr{Name: "/run/.s1/s", Net: "unix"} // the temporary path of a socket that serve creates
	systemds := &net.UnixAddr{Name: "/run/x.sock", Net: "unix"}
	for _, c := range []struct {
		endpoint string
		address  net.Addr
		want     string
	}{
		{"unix:///run/x.sock", elsewhere, "/run/x.sock.exec"},
		{"/run/x.sock", elsewhere, "/run/x.sock.exec"},
		{"fd://", systemds, "/run/x.sock.exec"},
		{"fd://", &net.UnixAddr{Name: "@x", Net: "unix"}, ""},
		{"fd://", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, ""},
	} {
		if got := execRecords(c.endpoint, c.address); got != c.want {
			t.Errorf("%s on %s: got %q, want %q", c.endpoint, c.address, got, c.want)
		}
	}
}

// TestPackagedSettings checks the file that the packages install: the file sets nothing by default, has a line for each
// flag, and serve accepts all lines.
func TestPackagedSettings(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../packaging/serve.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readServe(t, string(content)); err != nil {
		t.Errorf("as it comes: %v", err)
	}
	lines := regexp.MustCompile(`(?m)^#([a-z-]+): .+$`)
	// Settings of kubenet need network-plugin: kubenet.
	all := strings.ReplaceAll(lines.ReplaceAllStringFunc(string(content), func(line string) string { return line[1:] }), "network-plugin: cni", "network-plugin: kubenet")
	if _, err := readServe(t, all); err != nil {
		t.Errorf("all of it: %v", err)
	}
	var got, want []string
	for _, line := range lines.FindAllStringSubmatch(string(content), -1) {
		got = append(got, line[1])
	}
	for _, f := range cli.NewServeOptions().Flags() {
		if name := f.Names()[0]; name != cli.FlagServeConfig {
			want = append(want, name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags(-) lines(+): %s", diff)
	}
}
