package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim/network"
)

// script replaces the node's only plugin by a shell script. The other plugins are real.
func (n *node) script(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ptp"), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	n.options.BinDirs = []string{dir, "/usr/lib/cni"}
}

// A hanging plugin is killed with its children. The call does not wait for children that keep its output open.
func TestAPluginThatHangsIsEndedWithItsChildren(t *testing.T) {
	n := realPlugins(t)
	pod, _ := newPod(t, n)
	children := filepath.Join(t.TempDir(), "children")
	n.script(t, fmt.Sprintf(`[ "$CNI_COMMAND" = ADD ] || exec /usr/lib/cni/ptp
sleep 3600 &
echo $! >%[1]s.new; mv %[1]s.new %[1]s
wait
`, children))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- n.SetUp(ctx, pod) }()
	var child string
	test.Until(t, "the plugin", func() bool {
		text, err := os.ReadFile(children)
		child = strings.TrimSpace(string(text))
		return err == nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "ptp was killed: context canceled") {
		t.Errorf("got %v", err)
	}
	test.Until(t, "the plugin", func() bool {
		state, err := os.ReadFile(filepath.Join("/proc", child, "stat"))
		return err != nil || strings.Contains(string(state), ") Z ")
	})
	if ids, err := n.interrupted(); err != nil || len(ids) != 1 || ids[0] != pod.ID {
		t.Errorf("interrupted: got %v, %v", ids, err)
	}
	if err := n.TearDown(t.Context(), pod); err != nil {
		t.Error(err)
	}
	if ids, err := n.interrupted(); err != nil || len(ids) != 0 {
		t.Errorf("after the tear-down: got %v, %v", ids, err)
	}
}

func TestWhatPluginsSay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, want string }{
		"as it should be": {`echo '{"cniVersion":"1.0.0","code":11,"msg":"no address is free","details":"really"}'; exit 1`, "no address is free; really"},
		"on stderr":       {`echo 'segmentation fault' >&2; exit 2`, `exit status 2: "segmentation fault"`},
		"no JSON":         {`echo 'what?'; exit 1`, `exit status 1: "what?"`},
		"not a word":      {`exit 3`, "no error message: exit status 3"},
		"killed":          {`kill -9 $$`, "no error message: signal: killed"},
		"escape codes":    {`printf '\033[2Jboo' >&2; exit 1`, `"\x1b[2Jboo"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "plugin")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			var s starter
			if _, err := s.ExecPlugin(t.Context(), path, nil, nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// Two shims that share the cache do not change the same pod at once: a tear-down waits for a set-up in the other.
func TestAnotherShimWaitsItsTurn(t *testing.T) {
	n := realPlugins(t)
	pod, _ := newPod(t, n)
	begun := filepath.Join(t.TempDir(), "begun")
	n.script(t, fmt.Sprintf(`[ "$CNI_COMMAND" = ADD ] || exec /usr/lib/cni/ptp
: >%s
sleep 1
exec /usr/lib/cni/ptp
`, begun))
	ended := make(chan error)
	go func() { ended <- n.SetUp(t.Context(), pod) }()
	test.Until(t, "the plugin", func() bool { _, err := os.Stat(begun); return err == nil })
	other := New(n.options)
	if err := other.TearDown(t.Context(), pod); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left := n.reserved(t); len(left) != 0 {
		t.Errorf("addresses still taken: %v", left)
	}
}

// A pod that is set up during garbage collection keeps its network.
func TestReclaimLetsNewPodsBe(t *testing.T) {
	n := realPlugins(t)
	dead, _ := newPod(t, n)
	fresh, _ := newPod(t, n)
	if err := n.SetUp(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	_, err := n.Reclaim(t.Context(), func(string) bool {
		if err := n.SetUp(t.Context(), fresh); err != nil { // the cache has been read before
			t.Error(err)
		}
		return false
	}, false)
	if err != nil {
		t.Error(err)
	}
	if left := n.reserved(t); len(left) != 2 {
		t.Errorf("got %v taken, want the two of the new pod", left)
	}

	// During a set-up, which is not in the cache yet, nothing is collected.
	gate, err := n.gcLock(t.Context(), unix.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	collected := filepath.Join(t.TempDir(), "collected")
	conf, err := os.ReadFile(filepath.Join(n.conf, "10-test.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // for tearing down the pods
		n.script(t, "exec /usr/lib/cni/ptp\n")
		writeConf(t, n.conf, "10-test.conflist", string(conf))
	})
	n.script(t, fmt.Sprintf(`[ "$CNI_COMMAND" != GC ] || : >%s
[ "$CNI_COMMAND" != VERSION ] || exec echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'
`, collected))
	writeConf(t, n.conf, "10-test.conflist", `{"cniVersion":"1.1.0","name":"crishim-test","plugins":[{"type":"ptp"}]}`)
	p := New(n.options)
	for _, busy := range []bool{true, false} {
		if _, err := p.Reclaim(t.Context(), func(string) bool { return true }, false); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(collected); (err == nil) == busy {
			t.Errorf("garbage was collected: %v, while somebody was busy: %v", err == nil, busy)
		}
		gate.Close()
	}
}

func TestIdsThatAreNoneMakeNoFiles(t *testing.T) {
	t.Parallel()
	p := New(Options{ConfDir: t.TempDir(), CacheDir: t.TempDir()})
	for _, id := range []string{"", ".", "..", "../x", "a/b", "/"} {
		if f, err := p.lockFile(t.Context(), id); err == nil {
			t.Errorf("%q: got the file %s", id, f.File.Name())
		}
	}
	if err := p.TearDown(t.Context(), network.Pod{ID: "../x"}); err != nil {
		t.Error(err)
	}
	if ids, err := p.interrupted(); err != nil || len(ids) != 0 {
		t.Errorf("got %v, %v", ids, err)
	}
}
