package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// engineSysctls are what an engine since 20.10 sets in the namespaces that it
// makes: no IPv6 until somebody gives an interface an address, and ping and low
// ports for everybody in it.
func engineSysctls() [][2]string {
	return [][2]string{
		{"net/ipv6/conf/all/disable_ipv6", "1"},
		{"net/ipv4/ip_unprivileged_port_start", "0"},
		{"net/ipv4/ping_group_range", "0 2147483647"},
	}
}

// PrepareNetNS does in a namespace that nobody has prepared what the engine does
// in its own: the settings, then the loopback interface.
func PrepareNetNS(path string) error {
	err := ns.WithNetNSPath(path, func(ns.NetNS) error {
		for _, s := range engineSysctls() {
			if err := setSysctl(s[0], s[1]); err != nil {
				return err
			}
		}
		return loopbackUp()
	})
	if err != nil {
		return fmt.Errorf("prepare the network namespace %s: %w", path, err)
	}
	return nil
}

// setSysctl leaves out what the kernel does not have, as the engine does.
func setSysctl(name, value string) error {
	f, err := os.OpenFile("/proc/sys/"+name, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("a socket for the loopback interface: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, lo); err != nil {
		return fmt.Errorf("flags of the loopback interface: %w", err)
	}
	lo.SetUint16(lo.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("bring the loopback interface up: %w", err)
	}
	return nil
}
