package hostproc

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// diagRequest is the kernel's struct nlmsghdr and struct inet_diag_req_v2.
type diagRequest struct {
	Header           unix.NlMsghdr
	Family, Protocol uint8
	_                [2]uint8
	States           uint32
	Port             [2]byte
	_                [46]byte
}

// diagSocket is the kernel's struct inet_diag_msg.
type diagSocket struct {
	Family uint8
	_      [3]uint8
	Port   [2]byte
	_      [2]byte
	Source [16]byte
	_      [44]byte // peer, interface, cookie, timer, queues, uid
	Inode  uint32
}

// sockDiagByFamily is SOCK_DIAG_BY_FAMILY.
const sockDiagByFamily = 20

// listening lists TCP sockets that listen on a port in the network namespace of a process. It uses netlink, because for
// /proc/PID/net/tcp the kernel walks the connections of all namespaces, which takes about 20 ms per namespace.
func (p Process) listening(port uint16) (found []Listener, err error) {
	fd, err := p.diag()
	if err != nil { // not permitted without root, for example for rootless containers
		return p.table("tcp", tcpListen, port)
	}
	defer unix.Close(fd)
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		request := diagRequest{Family: family, Protocol: unix.IPPROTO_TCP, States: 1 << tcpListen}
		request.Header = unix.NlMsghdr{Len: uint32(binary.Size(request)), Type: sockDiagByFamily, Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP}
		binary.BigEndian.PutUint16(request.Port[:], port)
		message, err := binary.Append(nil, binary.NativeEndian, request)
		if err == nil {
			err = unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		}
		if err != nil {
			return nil, err
		}
		sockets, err := receive(fd)
		if err != nil { // the kernel lacks inet_diag
			return p.table("tcp", tcpListen, port)
		}
		for _, s := range sockets {
			address := netip.AddrFrom16(s.Source)
			if s.Family == unix.AF_INET {
				address = netip.AddrFrom4([4]byte(s.Source[:4]))
			}
			if binary.BigEndian.Uint16(s.Port[:]) == port {
				found = append(found, Listener{Protocol: "tcp", Address: netip.AddrPortFrom(address.Unmap(), port), inode: uint64(s.Inode)})
			}
		}
	}
	return found, nil
}

// receive reads the whole response to a request.
func receive(fd int) (sockets []diagSocket, err error) {
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil {
			return nil, err
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return sockets, nil
			case unix.NLMSG_ERROR:
				return nil, unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
			}
			var s diagSocket
			if _, err := binary.Decode(m.Data, binary.NativeEndian, &s); err != nil {
				return nil, err
			}
			sockets = append(sockets, s)
		}
	}
}

// diag opens a netlink socket in the network namespace of a process.
func (p Process) diag() (int, error) {
	there, err := os.Open(path(p.PID, "ns/net"))
	if err != nil {
		return 0, err
	}
	defer there.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return 0, err
	}
	defer here.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err == nil {
		// The connection to the kernel makes the socket drop messages from processes in that namespace.
		timeout := unix.NsecToTimeval(int64(2 * time.Second))
		err = errors.Join(unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout))
		if err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(back) // the thread would stay in the other namespace
	}
	return fd, err
}
