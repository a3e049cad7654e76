package network

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// setHairpin lets the bridge send a pod's frames back to the port that they came
// from. The sandbox's own /sys tells the index of its interface's other end,
// and the host's /sys has the switch.
func setHairpin(root string, pid int) error {
	peer, err := os.ReadFile(filepath.Join(root, "proc", fmt.Sprint(pid), "root/sys/class/net/eth0/iflink"))
	if err != nil {
		return fmt.Errorf("the other end of the pod's interface: %w", err)
	}
	indexes, err := filepath.Glob(filepath.Join(root, "sys/class/net/*/ifindex"))
	if err != nil {
		return fmt.Errorf("interfaces of the host: %w", err)
	}
	for _, file := range indexes {
		index, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(index)) != strings.TrimSpace(string(peer)) {
			continue
		}
		return os.WriteFile(filepath.Join(filepath.Dir(file), "brport/hairpin_mode"), []byte("1"), 0o644)
	}
	return fmt.Errorf("interface %s is not on this host", strings.TrimSpace(string(peer)))
}
