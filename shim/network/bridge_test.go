package network

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/crishim/crishim/internal/test"
)

func TestSetHairpin(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(path, content string) string {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("sys/class/net/veth6/ifindex", "6\n")
	write("sys/class/net/veth7/ifindex", "7\n")
	mode := write("sys/class/net/veth7/brport/hairpin_mode", "0\n")
	if err := setHairpin(root, 7); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(mode); err != nil || string(got) != "1" {
		t.Errorf("got %q, %v", got, err)
	}
	if setHairpin(root, 9) == nil || setHairpin(root, 6) == nil {
		t.Error("an interface that is not there was found")
	}
}

// TestPeerIndex checks the peer of a veth interface in another namespace.
func TestPeerIndex(t *testing.T) {
	if os.Geteuid() != 0 {
		test.Missing(t, "namespaces need root")
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		test.Missing(t, "%v", err)
	}
	pod := exec.Command("sleep", "3600")
	pod.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := pod.Start(); err != nil {
		test.Missing(t, "no network namespace: %v", err)
	}
	defer func() { _ = errors.Join(pod.Process.Kill(), pod.Wait()) }() // also removes the interfaces
	pid := fmt.Sprint(pod.Process.Pid)
	host := "crsh" + pid
	if out, err := exec.Command(ip, "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", pid).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	own, err := net.InterfaceByName(host)
	if err != nil {
		t.Fatal(err)
	}
	if peer, err := peerIndex("/proc/"+pid+"/ns/net", "eth0"); err != nil || peer != own.Index {
		t.Errorf("got %d, %v, want %d", peer, err, own.Index)
	}
	if peer, err := peerIndex("/proc/"+pid+"/ns/net", "lo"); err == nil {
		t.Errorf("of lo: got %d", peer)
	}
}
