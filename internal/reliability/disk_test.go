package reliability

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
)

// A disk is a small tmpfs.
type disk struct {
	t    testing.TB
	path string
}

// newDisk mounts a disk of 256 KiB until the test ends.
func newDisk(t testing.TB) disk {
	t.Helper()
	d := disk{t, t.TempDir()}
	if err := unix.Mount("tmpfs", d.path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=256k,mode=755"); err != nil {
		test.Missing(t, "a disk of its own cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d disk) fill() {
	d.t.Helper()
	f, err := os.Create(filepath.Join(d.path, "filler"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		d.t.Fatal(err)
	}
}

func (d disk) relieve() { d.remount(0, "size=64m") }

func (d disk) readOnly(yes bool) {
	flags := uintptr(0)
	if yes {
		flags = unix.MS_RDONLY
	}
	d.remount(flags, "")
}

func (d disk) remount(flags uintptr, options string) {
	d.t.Helper()
	if err := unix.Mount("tmpfs", d.path, "tmpfs", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|flags, options); err != nil {
		d.t.Fatal(err)
	}
}

const talkLines = 20_000

// talker returns a container that writes more than a small disk can hold and keeps running.
func (p *pod) talker() *runtimeapi.ContainerConfig {
	c := p.container()
	c.Command = []string{"sh", "-c", fmt.Sprintf("trap 'exit 0' TERM; seq %d; while :; do sleep 1 & wait; done", talkLines)}
	return c
}

// complete returns an error unless a talker's log has each line once and in order.
func (p *pod) complete() error {
	text, err := os.ReadFile(filepath.Join(p.config.GetLogDirectory(), "main.log"))
	if err != nil {
		return err
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	for i, line := range lines {
		if !bytes.HasSuffix(line, fmt.Appendf(nil, " stdout F %d", i+1)) {
			return fmt.Errorf("line %d of the log is %q", i+1, line)
		}
	}
	if len(lines) != talkLines {
		return fmt.Errorf("the log has %d lines, want %d", len(lines), talkLines)
	}
	return nil
}

func (k *killer) talks(t *testing.T, p *pod) {
	t.Helper()
	if err := p.run(t.Context(), k.serve); err != nil {
		t.Fatal(err)
	}
	r, err := k.serve.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, Config: p.talker(), SandboxConfig: p.config})
	if err != nil {
		t.Fatal(err)
	}
	p.containerID = r.GetContainerId()
	if err := p.start(t.Context(), k.serve); err != nil {
		t.Fatal(err)
	}
}

// works checks that a pod can be used, whatever the state of its log.
func (k *killer) works(t *testing.T, p *pod) {
	t.Helper()
	k.truthful(t, p)
	r, err := k.serve.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: p.containerID, Cmd: []string{"echo", "hi"}, Timeout: 60})
	if err != nil || string(r.GetStdout()) != "hi\n" {
		t.Errorf("exec: got %q, %v", r.GetStdout(), err)
	}
}

// TestLogOnAFullDiskOnEngine checks that the pod keeps running and that the log continues without a gap when there is
// space.
func TestLogOnAFullDiskOnEngine(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	k := newKiller(t, newHost(t))
	p := k.host.pod(t)
	p.config.LogDirectory = filepath.Join(d.path, "logs")
	k.talks(t, p)
	wait(t, func() error { // the log fills the disk
		var st unix.Statfs_t
		err := unix.Statfs(d.path, &st)
		if err == nil && st.Bfree > 0 {
			err = fmt.Errorf("%d blocks are free", st.Bfree)
		}
		return err
	})
	k.works(t, p)
	d.relieve()
	wait(t, p.complete)
	k.gone(t, p)
	k.serve.stop()
}

// TestLogOnAReadOnlyDiskOnEngine checks that the container starts without its log and that the complete log is written
// after a reopen on a writable disk.
func TestLogOnAReadOnlyDiskOnEngine(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	k := newKiller(t, newHost(t))
	p := k.host.pod(t)
	p.config.LogDirectory = filepath.Join(d.path, "logs")
	d.readOnly(true)
	k.talks(t, p)
	k.works(t, p)
	wait(t, func() error {
		return k.serve.logged("level=WARN", "the container's log is not at its path", p.containerID, "read-only file system")
	})
	d.readOnly(false)
	d.relieve()
	if _, err := k.serve.ReopenContainerLog(t.Context(), &runtimeapi.ReopenContainerLogRequest{ContainerId: p.containerID}); err != nil {
		t.Error(err)
	}
	wait(t, p.complete)
	k.gone(t, p)
	k.serve.stop()
}

// TestSocketOnABadDiskOnEngine checks that serve does not start if it cannot create its socket, and that a running
// serve continues when the socket's disk becomes full.
func TestSocketOnABadDiskOnEngine(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	h := newHost(t)
	socket := filepath.Join(d.path, "run", "s")
	crishim := h.crishim(t, "unix://"+socket)
	d.readOnly(true)
	r := crishim.run(t.Context(), "serve", "--listen", "unix://"+socket)
	if r.code != 1 || !strings.Contains(r.err, "crishim: listen on "+socket) || !strings.Contains(r.err, "read-only file system") {
		t.Errorf("on a disk that is read-only: got %+v", r)
	}
	d.readOnly(false)
	k := newKiller(t, h)
	p := k.running(t)
	full := newDisk(t)
	other := newServe(t, h.endpoint())
	other.move(t, full.path)
	other.start()
	full.fill()
	got := h.crishim(t, other.endpoint()).run(t.Context(), "exec", p.containerID, "echo", "hi")
	if got.code != 0 || got.out != "hi\n" {
		t.Errorf("exec on a full disk: got %+v", got)
	}
	k.gone(t, p)
	k.serve.stop()
	if err := os.Remove(filepath.Join(full.path, "filler")); err != nil {
		t.Error(err)
	}
	other.stop()
}

// TestCommandOnABadDiskOnEngine checks the error if a command cannot create its private directory. /run/crishim is a
// disk of its own.
func TestCommandOnABadDiskOnEngine(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		test.Missing(t, "mounts need root")
	}
	h := newHost(t)
	crishim := h.crishim(t, embedded(h.endpoint()))
	for name, options := range map[string]string{"read-only": "ro,mode=755", "full": "size=4k,nr_inodes=1,mode=755"} {
		cmd := crishim.command(t.Context(), "ps")
		script := `mkdir -p /run/crishim && mount -t tmpfs -o ` + options + ` tmpfs /run/crishim && `
		if name == "read-only" { // /tmp is the fallback; tests and this program may be on mounts below it
			script += `mount --rbind /tmp /tmp && mount -o remount,bind,ro /tmp && `
		}
		script += `exec crishim "$@"`
		shell := crishim.shell(t.Context(), script, cmd.Args[1:]...)
		shell.SysProcAttr = newMounts()
		r := crishim.wait(shell)
		if strings.Contains(r.err, "mount:") {
			test.Missing(t, "%s", r.err)
		}
		why := map[string]string{"read-only": "read-only file system", "full": "no space left on device"}[name]
		if r.code != 1 || !strings.Contains(r.err, "private directory for the embedded shim: ") || !strings.Contains(r.err, why) || strings.Count(r.err, "\n") > 2 {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}

// TestManifestOnABadDiskOnEngine checks that apply reports an unwritable volume and succeeds as soon as it is writable.
func TestManifestOnABadDiskOnEngine(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	h := newHost(t)
	p := h.pod(t)
	name := p.config.GetMetadata().GetName()
	p.label = "io.kubernetes.pod.name=" + name
	crishim := h.crishim(t, embedded(h.endpoint()))
	crishim.env = append(crishim.env, "CRISHIM_ROOT="+d.path)
	manifest := p.file(t, "pod.yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: reliability}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: v, configMap: {name: %s}}]
  containers:
  - {name: main, image: %q, imagePullPolicy: Never, command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1; done"], volumeMounts: [{name: v, mountPath: /v}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: %s, namespace: reliability}
data: {key: %s}
`, name, name, testImage, name, strings.Repeat("x", 8192)))
	for what, prepare := range map[string]func(){"read-only": func() { d.readOnly(true) }, "full": d.fill} {
		prepare()
		r := crishim.run(t.Context(), "apply", "-f", manifest)
		why := map[string]string{"read-only": "read-only file system", "full": "no space left on device"}[what]
		if r.code != 1 || !strings.Contains(r.err, "crishim: ") || !strings.Contains(r.err, why) {
			t.Errorf("%s: got %+v", what, r)
		}
		if what == "read-only" {
			d.readOnly(false)
		} else if err := os.Remove(filepath.Join(d.path, "filler")); err != nil {
			t.Fatal(err)
		}
	}
	d.relieve()
	if r := crishim.run(t.Context(), "apply", "-f", manifest); r.code != 0 {
		t.Errorf("with room again: got %+v", r)
	}
	if r := crishim.run(t.Context(), "exec", "reliability/"+name+"/main", "sh", "-c", "wc -c </v/key"); strings.TrimSpace(r.out) != "8192" {
		t.Errorf("the volume: got %+v", r)
	}
	if r := crishim.run(t.Context(), "delete", "reliability/"+name); r.code != 0 {
		t.Errorf("delete: got %+v", r)
	}
	wait(t, func() error { return p.left(context.WithoutCancel(t.Context())) })
	if left, err := os.ReadDir(filepath.Join(d.path, "pods")); err == nil && len(left) > 0 {
		t.Errorf("directories are left: %v", left)
	}
}

// TestConfigOnABadDisk checks that a failed write leaves the file unchanged.
func TestConfigOnABadDisk(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	path := filepath.Join(d.path, "crictl.yaml")
	before := "timeout: 7\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	crishim := program{t: t, env: append(os.Environ(), "CRI_CONFIG_FILE="+path)}
	for _, prepare := range []func(){d.fill, func() { d.readOnly(true) }} {
		prepare()
		r := crishim.run(t.Context(), "config", "--set", "timeout=9")
		text, err := os.ReadFile(path)
		if r.code != 1 || !strings.HasPrefix(r.err, "crishim: ") || err != nil || string(text) != before {
			t.Errorf("got %+v, and the file %q, %v", r, text, err)
		}
	}
	d.readOnly(false)
	if entries, err := os.ReadDir(d.path); err != nil || len(entries) != 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// TestCNIOnABadDiskOnEngine uses a full or read-only disk for the addresses or the cache of the CNI network. A failed
// set-up is undone, and a failed release is kept for a retry.
func TestCNIOnABadDiskOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for name, use := range map[string]func(n *cniNode, path string){
		"both":      func(n *cniNode, path string) { n.cache, n.addresses = path+"/cache", path+"/addresses" },
		"cache":     func(n *cniNode, path string) { n.cache = path + "/cache" },
		"addresses": func(n *cniNode, path string) { n.addresses = path + "/addresses" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, d := newCNINode(t), newDisk(t)
			use(&n, d.path)
			n.configure(t)
			k := newKiller(t, h, n.flags()...)
			refused := func(words string, do func(context.Context, runtimeapi.RuntimeServiceClient) error) {
				t.Helper()
				if err := do(t.Context(), k.serve); err == nil || !strings.Contains(err.Error(), words) {
					t.Errorf("got %v, want %q", err, words)
				} else {
					t.Log(err)
				}
			}

			first := k.prepared(t, steps()[1])
			d.fill()
			p := h.pod(t)
			refused("no space left on device", p.run)
			k.truthful(t, p)
			k.gone(t, p)
			k.gone(t, first)
			n.free(t)

			d.relieve()
			second := k.prepared(t, steps()[1])
			d.readOnly(true)
			refused("read-only file system", p.run)
			if name != "addresses" { // host-local reports success even if it could not release the address
				refused("read-only file system", second.stop)
				refused("read-only file system", second.remove)
			}
			k.truthful(t, second)
			d.readOnly(false)
			k.gone(t, p)
			k.gone(t, second)
			n.free(t)
			k.serve.stop()
		})
	}
}
