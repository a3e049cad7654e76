package hostproc

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Listener is a socket that waits for clients: a TCP socket that listens, a UDP socket without a peer.
type Listener struct {
	Protocol string // tcp or udp
	Address  netip.AddrPort
	Network  uint64    // inode of its network namespace
	Holders  []Process // those that have it open
	inode    uint64
}

// Networks groups processes by their network namespace. Those that may not be asked are left out; denied reports
// whether there are any.
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

// Listeners lists the sockets on a port, of a protocol or of both, in every network namespace.
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

// States of sockets in the kernel's tables.
const (
	stateListen = 10
	stateClosed = 7 // of UDP: without a peer
)

// listenersIn reads the tables of one network namespace, as any of its processes sees them.
func listenersIn(members []Process, port uint16, protocol string) (found []Listener, err error) {
	for _, p := range members {
		found = nil
		var table procfs.FS
		if table, err = procfs.NewFS(path(p.PID, "")); err != nil {
			continue
		}
		kinds := []struct {
			protocol string
			state    uint64
			read     []func() (procfs.NetTCP, error)
		}{
			{"tcp", stateListen, []func() (procfs.NetTCP, error){table.NetTCP, table.NetTCP6}}, //nolint:staticcheck // netlink asks in our own network only
			{"udp", stateClosed, []func() (procfs.NetTCP, error){
				func() (procfs.NetTCP, error) { l, err := table.NetUDP(); return procfs.NetTCP(l), err },
				func() (procfs.NetTCP, error) { l, err := table.NetUDP6(); return procfs.NetTCP(l), err },
			}},
		}
		for _, kind := range kinds {
			if protocol != "" && protocol != kind.protocol {
				continue
			}
			for _, read := range kind.read {
				lines, readErr := read()
				if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) { // IPv6 may be off
					err = readErr
				}
				for _, line := range lines {
					address, ok := netip.AddrFromSlice(line.LocalAddr)
					if ok && line.St == kind.state && line.LocalPort == uint64(port) {
						found = append(found, Listener{Protocol: kind.protocol, Address: netip.AddrPortFrom(address.Unmap(), port), inode: line.Inode})
					}
				}
			}
		}
		if err == nil && p.Alive() {
			return found, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // all have ended, and the namespace with them
		err = nil
	}
	return nil, err
}

// holdersOf finds the processes that have sockets open.
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
				continue // it has ended, or is another user's
			}
			for _, e := range entries {
				link, err := os.Readlink(dir + "/" + e.Name())
				// A file's link begins with /: none can be called so.
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

// SocketHolders finds the processes that listen on a socket in the file system. What counts is the file that the
// kernel has bound: the name that /proc/net/unix shows is chosen by who binds it.
func SocketHolders(networks map[uint64][]Process, file string) ([]Process, error) {
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: file, Err: err}
	}
	inodes := map[uint64]bool{}
	var failed error
	for _, members := range networks {
		for _, p := range members {
			bound, err := boundIn(p)
			if err != nil {
				failed = err
				continue
			}
			for _, b := range bound {
				if b.device == unix.Mkdev(unix.Major(st.Dev), unix.Minor(st.Dev)) && uint64(b.file) == st.Ino&0xffffffff {
					inodes[b.socket] = true
				}
			}
			failed = nil
			break
		}
	}
	var list []Process
	for _, holders := range holdersOf(networks, inodes) {
		list = append(list, holders...)
	}
	if len(list) == 0 {
		return nil, failed
	}
	return list, nil
}

// bound is a socket that has a name in a file system.
type bound struct {
	device uint64
	file   uint32 // the low half of its inode
	socket uint64
}

// boundIn asks the kernel for the listening unix sockets of a process's network namespace. The thread that
// enters it ends with the goroutine.
func boundIn(p Process) (list []bound, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var namespace *os.File
		if namespace, err = os.Open(path(p.PID, "ns/net")); err != nil {
			return
		}
		defer namespace.Close()
		if err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err == nil {
			list, err = dumpBound()
		}
	}()
	<-done
	return list, err
}

const (
	sockDiagByFamily = 20      // SOCK_DIAG_BY_FAMILY
	showVFS          = 0x2     // UDIAG_SHOW_VFS
	attributeVFS     = 1       // UNIX_DIAG_VFS
	diagSize         = 16      // of struct unix_diag_msg
	listening        = 1 << 10 // TCP_LISTEN, which unix sockets have as well
	unconnected      = 1 << 7  // of datagrams
)

func dumpBound() ([]bound, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	order := binary.NativeEndian
	request := order.AppendUint32(nil, unix.NLMSG_HDRLEN+24)
	request = order.AppendUint16(request, sockDiagByFamily)
	request = order.AppendUint16(request, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request = append(request, make([]byte, 8)...)                // sequence and port
	request = append(request, unix.AF_UNIX, 0, 0, 0)             // family, protocol, padding
	request = order.AppendUint32(request, listening|unconnected) // states
	request = order.AppendUint32(request, 0)                     // of all inodes
	request = order.AppendUint32(request, showVFS)
	request = append(request, make([]byte, 8)...) // no cookie
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	var list []bound
	for buf := make([]byte, 64<<10); ; {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			switch {
			case m.Header.Type == unix.NLMSG_DONE:
				return list, nil
			case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4:
				return nil, os.NewSyscallError("sock_diag", unix.Errno(-int32(order.Uint32(m.Data))))
			case len(m.Data) < diagSize:
				continue
			}
			for rest := m.Data[diagSize:]; len(rest) >= 4; {
				size := int(order.Uint16(rest))
				if size < 4 || size > len(rest) {
					break
				}
				if order.Uint16(rest[2:]) == attributeVFS && size >= 12 {
					device := order.Uint32(rest[8:]) // as the kernel has it: 12 bits and 20
					list = append(list, bound{unix.Mkdev(device>>20, device&0xfffff), order.Uint32(rest[4:]), uint64(order.Uint32(m.Data[4:]))})
				}
				rest = rest[min((size+3)&^3, len(rest)):]
			}
		}
	}
}
