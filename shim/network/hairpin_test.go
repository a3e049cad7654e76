package network

import (
	"os"
	"path/filepath"
	"testing"
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
	write("proc/42/root/sys/class/net/eth0/iflink", "7\n")
	write("sys/class/net/veth6/ifindex", "6\n")
	write("sys/class/net/veth7/ifindex", "7\n")
	mode := write("sys/class/net/veth7/brport/hairpin_mode", "0\n")
	if err := setHairpin(root, 42); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(mode); err != nil || string(got) != "1" {
		t.Errorf("got %q, %v", got, err)
	}
	write("proc/43/root/sys/class/net/eth0/iflink", "9\n")
	if setHairpin(root, 43) == nil || setHairpin(root, 44) == nil {
		t.Error("an interface that is not there was found")
	}
}
