package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim/network"
)

// script is a CNI plugin that records its calls with arguments and configuration and returns the same address for each
// pod. A command fails if a file with its name exists.
const script = `#!/bin/sh
config=$(cat)
[ "$CNI_COMMAND" = VERSION ] && { echo '{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}'; exit; }
printf '%%s|%%s|%%s|%%s\n' "$CNI_COMMAND" "$CNI_CONTAINERID" "$CNI_ARGS" "$config" >>%[1]s/calls
[ ! -e "%[1]s/$CNI_COMMAND" ] || { echo '{"cniVersion":"1.1.0","code":50,"msg":"the plugin is not ready"}'; exit 1; }
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion":"%[2]s","interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"interface":0,"address":"198.18.79.2/24"}]}'
`

type call struct {
	command, id, args string
	config            map[string]any
}

type scripted struct {
	*Plugin
	dir string
}

func scriptedPlugin(t *testing.T, version string) scripted {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"bin", "conf"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/scripted"), fmt.Appendf(nil, script, dir, version), 0o755); err != nil {
		t.Fatal(err)
	}
	writeConf(t, filepath.Join(dir, "conf"), "10.conflist", fmt.Sprintf(
		`{"cniVersion":%q,"name":"scripted","plugins":[{"type":"scripted","capabilities":{"portMappings":true,"ipRanges":true,"bandwidth":true}}]}`, version))
	return scripted{New(Options{ConfDir: filepath.Join(dir, "conf"), BinDirs: []string{filepath.Join(dir, "bin")}, CacheDir: filepath.Join(dir, "cache"), PodCIDR: "198.18.79.0/24"}), dir}
}

func (s scripted) take(t *testing.T) []call {
	t.Helper()
	path := filepath.Join(s.dir, "calls")
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var calls []call
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(line, "|", 4)
		c := call{command: parts[0], id: parts[1], args: parts[2]}
		if err := json.Unmarshal([]byte(parts[3]), &c.config); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	return calls
}

func commandsOf(calls []call) string {
	var names []string
	for _, c := range calls {
		names = append(names, c.command)
	}
	return strings.Join(names, " ")
}

func scriptedPod(id string) network.Pod {
	return network.Pod{
		ID: id, NetNS: "/proc/self/ns/net", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "prod", Uid: "u-1"},
		Annotations: map[string]string{"kubernetes.io/egress-bandwidth": "5M"},
		Ports:       []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 8080}},
	}
}

// TestWhatPluginsAreAsked checks the sequence of commands and their input for each CNI version.
func TestWhatPluginsAreAsked(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]struct{ status, check, collect string }{
		"0.3.1": {"", "", ""}, "0.4.0": {"", "CHECK", ""}, "1.0.0": {"", "CHECK", ""}, "1.1.0": {"STATUS", "CHECK", "GC"},
	} {
		s := scriptedPlugin(t, version)
		alive, dead := scriptedPod("alive"), scriptedPod("dead")
		for _, pod := range []network.Pod{alive, dead} {
			if err := s.SetUp(t.Context(), pod); err != nil {
				t.Fatal(version, err)
			}
		}
		calls := s.take(t)
		if got := commandsOf(calls); got != "ADD ADD" {
			t.Errorf("%s: set-up asks %q", version, got)
		}
		told, err := json.Marshal(calls[0].config["runtimeConfig"])
		if err != nil {
			t.Fatal(err)
		}
		if calls[0].args != "IgnoreUnknown=1;K8S_POD_NAMESPACE=prod;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=alive;K8S_POD_UID=u-1" ||
			string(told) != `{"bandwidth":{"egressBurst":2147483647,"egressRate":5000000},"ipRanges":[[{"subnet":"198.18.79.0/24"}]],`+
				`"portMappings":[{"containerPort":80,"hostIP":"","hostPort":8080,"protocol":"tcp"}]}` {
			t.Errorf("%s: the plugin is told %s and %s", version, calls[0].args, told)
		}
		if got, err := s.Addresses(t.Context(), alive); err != nil || !slices.Equal(got, []string{"198.18.79.2"}) || len(s.take(t)) != 0 {
			t.Errorf("%s: addresses: got %v, %v, want one and no plugin asked", version, got, err)
		}
		if err := s.Status(t.Context()); err != nil {
			t.Errorf("%s: status: %v", version, err)
		}
		if got := commandsOf(s.take(t)); got != want.status {
			t.Errorf("%s: status asks %q, want %q", version, got, want.status)
		}
		if err := s.Check(t.Context(), alive); err != nil {
			t.Errorf("%s: check: %v", version, err)
		}
		if got := commandsOf(s.take(t)); got != want.check {
			t.Errorf("%s: check asks %q, want %q", version, got, want.check)
		}
		gone, err := s.Reclaim(t.Context(), func(id string) bool { return id == "alive" }, false)
		if err != nil || !slices.Equal(gone, []string{"dead"}) {
			t.Errorf("%s: reclaim: got %v, %v", version, gone, err)
		}
		calls = s.take(t)
		if got := commandsOf(calls); got != strings.TrimSpace("DEL "+want.collect) || calls[0].id != "dead" {
			t.Errorf("%s: reclaim asks %q about %s, want DEL of the dead one and %q", version, got, calls[0].id, want.collect)
		}
		if want.collect != "" {
			if left := fmt.Sprint(calls[1].config["cni.dev/valid-attachments"]); left != "[map[containerID:alive ifname:eth0]]" {
				t.Errorf("%s: the plugin may keep %s, want what is alive", version, left)
			}
		}
		// A shared network is not garbage collected, because the cache lacks the other runtime's pods.
		if _, err := s.Reclaim(t.Context(), func(string) bool { return true }, true); err != nil || len(s.take(t)) != 0 {
			t.Errorf("%s: reclaim of a shared network: got %v and calls", version, err)
		}
		alive.NetNS = "" // the sandbox has ended
		if err := s.TearDown(t.Context(), alive); err != nil {
			t.Errorf("%s: tear-down: %v", version, err)
		}
		if calls := s.take(t); commandsOf(calls) != "DEL" || version >= "0.4.0" && calls[0].config["prevResult"] == nil {
			t.Errorf("%s: tear-down asks %v", version, calls)
		}
	}
}

// TestReclaimAfterAFailedTearDown checks that Reclaim does not return a network that a plugin failed to delete, and that
// the garbage collection keeps this network, so that the next Reclaim can delete it.
func TestReclaimAfterAFailedTearDown(t *testing.T) {
	t.Parallel()
	s := scriptedPlugin(t, "1.1.0")
	if err := s.SetUp(t.Context(), scriptedPod("dead")); err != nil {
		t.Fatal(err)
	}
	s.take(t)
	failing := filepath.Join(s.dir, "DEL")
	if err := os.WriteFile(failing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	exists := func(string) bool { return false }
	if freed, err := s.Reclaim(t.Context(), exists, false); err == nil || len(freed) != 0 {
		t.Errorf("the plugin fails: got %v, %v, want an error only", freed, err)
	}
	calls := s.take(t)
	if got := commandsOf(calls); got != "DEL GC" {
		t.Fatalf("the plugin is called with %q, want DEL once, then GC", got)
	}
	if valid := fmt.Sprint(calls[1].config["cni.dev/valid-attachments"]); valid != "[map[containerID:dead ifname:eth0]]" {
		t.Errorf("got valid attachments %s, want only the attachment that stays", valid)
	}
	if err := os.Remove(failing); err != nil {
		t.Fatal(err)
	}
	if freed, err := s.Reclaim(t.Context(), exists, false); err != nil || !slices.Equal(freed, []string{"dead"}) {
		t.Errorf("the plugin works again: got %v, %v", freed, err)
	}
}

// TestSetUpWithoutTheLock checks that a network is set up without the lock against garbage collection, with a warning.
func TestSetUpWithoutTheLock(t *testing.T) {
	t.Parallel()
	s := scriptedPlugin(t, "1.1.0")
	var log test.Buffer
	s.options.Log = slog.New(slog.NewTextHandler(&log, nil))
	cache := filepath.Join(s.dir, "cache")
	if err := errors.Join(os.Mkdir(cache, 0o700), os.WriteFile(filepath.Join(cache, "crishim"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := s.SetUp(t.Context(), scriptedPod("a")); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "garbage collection") {
		t.Errorf("got the log:\n%s", log.String())
	}
}

// TestWhatPluginsRefuse checks that a plugin's error is reported and that the attachment is kept.
func TestWhatPluginsRefuse(t *testing.T) {
	t.Parallel()
	s := scriptedPlugin(t, "1.1.0")
	pod := scriptedPod("a")
	if err := s.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command string
		ask     func() error
	}{
		{"STATUS", func() error { return s.Status(t.Context()) }},
		{"CHECK", func() error { return s.Check(t.Context(), pod) }},
		{"GC", func() error {
			_, err := s.Reclaim(t.Context(), func(string) bool { return true }, false)
			return err
		}},
		{"DEL", func() error { return s.TearDown(t.Context(), pod) }},
	} {
		file := filepath.Join(s.dir, c.command)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.ask(); err == nil || !strings.Contains(err.Error(), "scripted") || !strings.Contains(err.Error(), "the plugin is not ready") {
			t.Errorf("%s: got %v, want what the plugin says", c.command, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := c.ask(); err != nil {
			t.Errorf("%s, again: %v", c.command, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "cache/results/*")); err != nil || len(left) != 0 {
		t.Errorf("got %v, %v in the cache, want nothing", left, err)
	}
}
