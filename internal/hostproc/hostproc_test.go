package hostproc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/proctree"
	"github.com/crishim/crishim/internal/test"
)

func TestLook(t *testing.T) {
	t.Parallel()
	own, err := Look(os.Getpid())
	if err != nil || own.PID != os.Getpid() || own.Parent != os.Getppid() || own.Command == "" || own.Kernel {
		t.Errorf("own process: %+v, %v", own, err)
	}
	if thread, err := Look(unix.Gettid()); err != nil || thread.PID != own.PID {
		t.Errorf("own thread: %+v, %v", thread, err)
	}
	for _, pid := range []int{1<<31 - 1, 0, -1} {
		if p, err := Look(pid); !errors.Is(err, proctree.ErrGone) {
			t.Errorf("%d: %+v, %v", pid, p, err)
		}
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if p, err := Look(ended.Process.Pid); err == nil && p.Parent == own.PID {
		t.Errorf("a process that has ended: %+v", p)
	}
}

// TestListeners looks up sockets of this process by port and by file. Connections are not listed.
func TestListeners(t *testing.T) {
	t.Parallel()
	own, err := Look(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	networks, _ := Networks([]Process{own})
	if len(networks) != 1 {
		t.Fatalf("networks: %v", networks)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	client, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for protocol, address := range map[string]string{"tcp": tcp.Addr().String(), "udp": udp.LocalAddr().String()} {
		listening, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		found, err := Listeners(networks, uint16(listening.Port), protocol)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(found, func(l Listener) bool { return l.Address.String() == address })
		if i < 0 || found[i].Protocol != protocol || len(found[i].Holders) != 1 || found[i].Holders[0].PID != own.PID {
			t.Errorf("%s %s: %+v", protocol, address, found)
		}
	}
	port := client.LocalAddr().(*net.TCPAddr).Port //nolint:forcetypeassert // known type
	if found, err := Listeners(networks, uint16(port), "tcp"); err != nil || len(found) != 0 {
		t.Errorf("a client: %+v, %v", found, err)
	}
}

// TestDiagTakesAnswersOfTheKernel sends a message from another process.
func TestDiagTakesAnswersOfTheKernel(t *testing.T) {
	t.Parallel()
	own, err := Look(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	fd, err := own.diag()
	if errors.Is(err, unix.EPERM) {
		test.Missing(t, "entering a network namespace needs root: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	address, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	other, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	if address.(*unix.SockaddrNetlink).Pid == 0 { //nolint:forcetypeassert // it is one
		t.Error("the socket has no address")
	}
	if err := unix.Sendto(other, make([]byte, unix.NLMSG_HDRLEN), unix.MSG_DONTWAIT, address); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a message of another process: got %v, want %v", err, unix.ECONNREFUSED)
	}
}

// TestListenersOfAnotherNetwork looks up a socket in another network namespace, by netlink and in /proc.
func TestListenersOfAnotherNetwork(t *testing.T) {
	child := exec.Command("sleep", "1000")
	var listener net.Listener
	var err error
	runtime.LockOSThread()
	here, hereErr := os.Open("/proc/thread-self/ns/net")
	if hereErr != nil {
		t.Fatal(hereErr)
	}
	defer here.Close()
	if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
		if listener, err = net.Listen("tcp", "0.0.0.0:0"); err == nil {
			err = child.Start()
		}
		if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); back != nil {
			t.Fatal(back)
		}
	}
	runtime.UnlockOSThread()
	if errors.Is(err, unix.EPERM) {
		test.Missing(t, "a new network namespace needs root: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	defer func() { _ = child.Wait() }()
	defer func() { _ = child.Process.Kill() }()
	p, err := Look(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().(*net.TCPAddr).AddrPort() //nolint:forcetypeassert // known type
	byNetlink, err := p.listening(address.Port())
	if err != nil || len(byNetlink) != 1 || byNetlink[0].Address.Port() != address.Port() || byNetlink[0].inode == 0 {
		t.Errorf("by netlink: %+v, %v", byNetlink, err)
	}
	inTable, err := p.table("tcp", tcpListen, address.Port())
	if diff := cmp.Diff(fmt.Sprint(inTable), fmt.Sprint(byNetlink)); diff != "" || err != nil {
		t.Errorf("in the table(-): %v\n%s", err, diff)
	}
}
