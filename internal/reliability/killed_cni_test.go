package reliability

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/test"
)

// wrapper replaces a CNI plugin. If the file "kill" names the call, it kills serve: instead of the plugin's work, after
// it, or, as a stray, together with the plugin's parent before it does its work anyway.
const wrapper = `#!/bin/sh
hit() {
	[ "$(cat %[1]s/kill)" = "$CNI_COMMAND %[3]s $1" ] || return 1
	kill -9 "$(cat %[1]s/pid)"
	echo >%[1]s/kill
}
if hit instead; then exit 1; fi
if hit stray; then
	kill -9 $PPID
	sleep 2
	%[2]s/%[3]s
	exec touch %[1]s/strayed
fi
%[2]s/%[3]s
status=$?
hit after
exit $status
`

const pluginDir = "/usr/lib/cni"

// cniNode is a CNI network whose plugins can kill serve.
type cniNode struct {
	dir              string // parent of conf and bin
	cache, addresses string
}

func newCNINode(t *testing.T) cniNode {
	t.Helper()
	if os.Geteuid() != 0 {
		test.Missing(t, "CNI plugins need root")
	}
	dir := t.TempDir()
	n := cniNode{dir, filepath.Join(dir, "cache"), filepath.Join(dir, "addresses")}
	for _, d := range []string{"conf", "bin"} {
		if err := os.Mkdir(filepath.Join(n.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ptp", "host-local"} {
		if _, err := os.Stat(filepath.Join(pluginDir, name)); err != nil {
			test.Missing(t, "%v", err)
		}
		n.write(t, "bin/"+name, fmt.Sprintf(wrapper, n.dir, pluginDir, name))
	}
	n.configure(t)
	n.write(t, "kill", "")
	return n
}

func (n cniNode) configure(t *testing.T) {
	t.Helper()
	n.write(t, "conf/10-test.conflist", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"crishim-killed","plugins":[{
		"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"198.18.78.0/24"}]]}}]}`, n.addresses))
}

func (n cniNode) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (n cniNode) flags() []string {
	return []string{
		"--network-plugin", "cni", "--cni-conf-dir", filepath.Join(n.dir, "conf"),
		"--cni-bin-dir", filepath.Join(n.dir, "bin"), "--cni-cache-dir", n.cache,
	}
}

// reserved lists the network's files for attachments and addresses.
func (n cniNode) reserved(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, dir := range []string{n.addresses, n.cache} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil
			}
			if err == nil && !d.IsDir() && d.Name() != "lock" && !strings.HasPrefix(d.Name(), "last_reserved_ip") {
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// TestServeKilledInCNIPluginsOnEngine kills serve before and after each plugin of the chain. No address and no
// attachment may be left.
func TestServeKilledInCNIPluginsOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	n := newCNINode(t)
	k := newKiller(t, h, n.flags()...)
	byName := map[string]step{}
	for _, st := range steps() {
		byName[st.name] = st
	}
	for _, c := range []struct{ command, step string }{{"ADD", "RunPodSandbox"}, {"DEL", "StopPodSandbox"}} {
		for _, plugin := range []string{"ptp", "host-local"} {
			for _, when := range []string{"instead", "after"} {
				st := byName[c.step]
				p := n.kill(t, k, st, strings.Join([]string{c.command, plugin, when}, " "))
				k.serve.start()
				k.truthful(t, p)
				k.again(t, st, p)
				k.gone(t, p)
				n.free(t)
			}
		}
	}
	k.serve.stop()
}

// TestStrayCNIPluginOnEngine covers a plugin that survives serve and the plugin that started it. It reserves an address
// while the pod is already being stopped, or after it was removed with docker.
func TestStrayCNIPluginOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	n := newCNINode(t)
	k := newKiller(t, h, n.flags()...)
	st := steps()[0]

	p := n.kill(t, k, st, "ADD host-local stray")
	k.serve.start()
	k.gone(t, p)
	n.strayed(t)
	n.free(t)

	p = n.kill(t, k, st, "ADD host-local stray")
	p.sweep(t)
	k.serve.start()
	n.strayed(t)
	wait(t, func() error { return none("addresses or attachments", n.reserved(t)) })
	k.serve.stop()
}

// kill makes a request in which a plugin kills serve, and waits for that.
func (n cniNode) kill(t *testing.T, k *killer, st step, when string) *pod {
	t.Helper()
	p := k.prepared(t, st)
	n.write(t, "pid", strconv.Itoa(k.serve.pid()))
	n.write(t, "kill", when)
	if err := st.call(p, t.Context(), k.serve); err == nil {
		t.Fatalf("%s: serve was not killed", when)
	}
	k.serve.kill()
	wait(t, func() error { // serve does not control this plugin
		text, err := os.ReadFile(filepath.Join(n.dir, "kill"))
		if err == nil && strings.TrimSpace(string(text)) != "" {
			err = fmt.Errorf("the plugin has not come to %s", text)
		}
		return err
	})
	t.Log(when)
	return p
}

// strayed waits until the stray plugin has finished.
func (n cniNode) strayed(t *testing.T) {
	t.Helper()
	wait(t, func() error { return os.Remove(filepath.Join(n.dir, "strayed")) })
}

func (n cniNode) free(t *testing.T) {
	t.Helper()
	if left := n.reserved(t); len(left) != 0 {
		t.Errorf("addresses or attachments left: %v", left)
	}
}
