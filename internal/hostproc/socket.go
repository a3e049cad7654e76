package hostproc

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Listener is a listening TCP socket or a UDP socket without a peer.
type Listener struct {
	Protocol string // tcp or udp
	Address  netip.AddrPort
	Network  uint64    // inode of its network namespace
	Holders  []Process // processes that have it open
	inode    uint64
}

// Networks groups processes by network namespace. denied reports whether processes were left out for lack of
// permission.
func Networks(all []Process) (networks map[uint64][]Process, denied bool) {
	networks = map[uint64][]Process{}
	for _, p := range all {
		inode, err := p.Namespace("net")
		denied = denied || errors.Is(err, fs.ErrPermission)
		if err == nil {
			networks[inode] = append(networks[inode], p)
		}
	}
	return networks, denied
}

// Listeners lists the sockets on a port in the network namespaces that are keys of networks. It looks for their holders
// among the processes in networks. An empty protocol means tcp and udp.
func Listeners(networks map[uint64][]Process, port uint16, protocol string) ([]Listener, error) {
	var found []Listener
	for network, members := range networks {
		list, err := listenersIn(members, port, protocol)
		if err != nil {
			return nil, err
		}
		for i := range list {
			list[i].Network = network
		}
		found = append(found, list...)
	}
	inodes := map[uint64]bool{}
	for _, l := range found {
		inodes[l.inode] = true
	}
	holders := holdersOf(networks, inodes)
	for i := range found {
		found[i].Holders = holders[found[i].inode]
	}
	slices.SortFunc(found, func(a, b Listener) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), a.Address.Compare(b.Address), cmp.Compare(a.Network, b.Network))
	})
	return found, nil
}

// listenersIn lists the sockets of a network namespace through any of its processes.
func listenersIn(members []Process, port uint16, protocol string) ([]Listener, error) {
	var err error
	for _, p := range members {
		var tcp, udp []Listener
		if tcp, err = nil, nil; protocol != "udp" {
			tcp, err = p.listening(port)
		}
		if protocol != "tcp" && err == nil {
			udp, err = p.table("udp", udpUnconnected, port)
		}
		if err == nil && p.Alive() {
			return append(tcp, udp...), nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // all processes and the namespace are gone
		err = nil
	}
	return nil, err
}

// Socket states in the kernel's tables.
const (
	tcpListen      = 10
	udpUnconnected = 7 // without a peer
)

// table reads the sockets on a port from the tables in /proc.
func (p Process) table(protocol string, state uint64, port uint16) (found []Listener, err error) {
	table, err := procfs.NewFS(path(p.PID, ""))
	if err != nil {
		return nil, err
	}
	reads := []func() (procfs.NetTCP, error){table.NetTCP, table.NetTCP6} //nolint:staticcheck // fallback if netlink is not permitted
	if protocol == "udp" {
		reads = []func() (procfs.NetTCP, error){
			func() (procfs.NetTCP, error) { l, err := table.NetUDP(); return procfs.NetTCP(l), err },
			func() (procfs.NetTCP, error) { l, err := table.NetUDP6(); return procfs.NetTCP(l), err },
		}
	}
	for _, read := range reads {
		lines, err := read()
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // IPv6 may be disabled
			return nil, err
		}
		for _, line := range lines {
			address, ok := netip.AddrFromSlice(line.LocalAddr)
			if ok && line.St == state && line.LocalPort == uint64(port) {
				found = append(found, Listener{Protocol: protocol, Address: netip.AddrPortFrom(address.Unmap(), port), inode: line.Inode})
			}
		}
	}
	return found, nil
}

// holdersOf finds the processes that have the sockets open.
func holdersOf(networks map[uint64][]Process, inodes map[uint64]bool) map[uint64][]Process {
	holders := map[uint64][]Process{}
	if len(inodes) == 0 {
		return holders
	}
	links := map[string]uint64{}
	for inode := range inodes {
		links[fmt.Sprintf("socket:[%d]", inode)] = inode
	}
	for _, members := range networks {
		for _, p := range members {
			dir := path(p.PID, "fd")
			entries, err := os.ReadDir(dir)
			if err != nil {
				continue // the process has ended or belongs to another user
			}
			for _, e := range entries {
				link, err := os.Readlink(dir + "/" + e.Name())
				// A file's link starts with /, so no file can imitate this name.
				if inode, ok := links[link]; ok && err == nil && !slices.ContainsFunc(holders[inode], func(h Process) bool { return h.PID == p.PID }) {
					holders[inode] = append(holders[inode], p)
				}
			}
		}
	}
	for _, list := range holders {
		slices.SortFunc(list, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	}
	return holders
}
