package reliability

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// wrapper stands in a CNI plugin's place. Where the file "kill" names the call,
// it ends serve first, or as soon as the plugin has done its work.
const wrapper = `#!/bin/sh
hit() {
	[ "$(cat %[1]s/kill)" = "$CNI_COMMAND %[3]s $1" ] || return 0
	kill -9 "$(cat %[1]s/pid)"
	echo >%[1]s/kill
	[ "$1" != instead ] || exit 1
}
hit instead
%[2]s/%[3]s
status=$?
hit after
exit $status
`

const pluginDir = "/usr/lib/cni"

// cniNode is a CNI network of its own, whose plugins can kill serve.
type cniNode struct {
	dir string // conf, bin, cache and addresses are below
}

func newCNINode(t *testing.T) cniNode {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("CNI plugins need root")
	}
	n := cniNode{t.TempDir()}
	for _, d := range []string{"conf", "bin"} {
		if err := os.Mkdir(filepath.Join(n.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ptp", "host-local"} {
		if _, err := os.Stat(filepath.Join(pluginDir, name)); err != nil {
			t.Skip(err)
		}
		n.write(t, "bin/"+name, fmt.Sprintf(wrapper, n.dir, pluginDir, name))
	}
	n.write(t, "conf/10-test.conflist", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"crishim-killed","plugins":[{
		"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"198.18.78.0/24"}]]}}]}`, filepath.Join(n.dir, "addresses")))
	n.write(t, "kill", "")
	return n
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
		"--cni-bin-dir", filepath.Join(n.dir, "bin"), "--cni-cache-dir", filepath.Join(n.dir, "cache"),
	}
}

// reserved are the files below the network's directories that stand for an
// attachment or an address.
func (n cniNode) reserved(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, dir := range []string{"addresses", "cache/results"} {
		err := filepath.WalkDir(filepath.Join(n.dir, dir), func(path string, d fs.DirEntry, err error) error {
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

// TestServeKilledInCNIPluginsOnEngine kills serve while a CNI plugin works, before
// and after each one in the chain: no address and no attachment is left.
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
				p := k.prepared(t, st)
				n.write(t, "pid", strconv.Itoa(k.serve.pid()))
				n.write(t, "kill", strings.Join([]string{c.command, plugin, when}, " "))
				if err := st.call(p, t.Context(), k.serve); err == nil {
					t.Fatalf("%s %s %s: serve was not killed", c.command, plugin, when)
				}
				k.serve.kill()
				wait(t, func() error { // the plugin is not serve's to end
					text, err := os.ReadFile(filepath.Join(n.dir, "kill"))
					if err == nil && strings.TrimSpace(string(text)) != "" {
						err = fmt.Errorf("the plugin has not come to %s", text)
					}
					return err
				})
				k.serve.start()
				t.Logf("%s %s, killed %s it", c.command, plugin, when)
				k.truthful(t, p)
				k.again(t, st, p)
				k.gone(t, p)
				if left := n.reserved(t); len(left) != 0 {
					t.Errorf("addresses or attachments left: %v", left)
				}
			}
		}
	}
	k.serve.stop()
}
