package hostproc

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
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
		if p, err := Look(pid); !errors.Is(err, ErrGone) {
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

// TestListeners: sockets of this process are found by their port and by their file, and no connections.
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
	port := client.LocalAddr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is one
	if found, err := Listeners(networks, uint16(port), "tcp"); err != nil || len(found) != 0 {
		t.Errorf("a client: %+v, %v", found, err)
	}
}
