package hostproc

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

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

func TestSocketHolders(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		test.Missing(t, "needs root to enter a network namespace")
	}
	own, err := Look(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	networks, _ := Networks([]Process{own})
	dir := test.SocketDir(t)
	file := filepath.Join(dir, "a.sock")
	l, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if holders, err := SocketHolders(networks, file); err != nil || len(holders) != 1 || holders[0].PID != own.PID {
		t.Errorf("got %+v, %v", holders, err)
	}
	// Another file of the same name is not what was bound.
	if err := os.Rename(file, file+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if holders, err := SocketHolders(networks, file); err != nil || len(holders) != 0 {
		t.Errorf("another file: %+v, %v", holders, err)
	}
}

func TestLocate(t *testing.T) {
	t.Parallel()
	disk, memory := [2]int{8, 1}, [2]int{0, 30}
	mounts := []Mount{
		{Device: disk, Root: "/", Mountpoint: "/", Type: "ext4"}, {Device: memory, Root: "/", Mountpoint: "/run", Type: "tmpfs"},
		{Device: disk, Root: "/data/volume", Mountpoint: "/run/v", Type: "ext4"}, {Device: memory, Root: "/over", Mountpoint: "/run/v", Type: "tmpfs"},
	}
	for path, want := range map[string]Place{
		"/": {disk, "/", mounts[0]}, "/etc/x": {disk, "/etc/x", mounts[0]}, "/runner": {disk, "/runner", mounts[0]},
		"/run": {memory, "/", mounts[1]}, "/run/a": {memory, "/a", mounts[1]}, "/run/v/a": {memory, "/over/a", mounts[3]},
	} {
		if got, ok := Locate(mounts, path); !ok || !cmp.Equal(got, want, cmp.AllowUnexported(Mount{})) {
			t.Errorf("%s: %+v, %v", path, got, ok)
		}
	}
	if _, ok := Locate(nil, "/x"); ok {
		t.Error("it is nowhere")
	}
	inside := Mount{Device: disk, Root: "/data/volume", Mountpoint: "/mnt"}
	for path, want := range map[string]string{"/data/volume": "/mnt", "/data/volume/a/b": "/mnt/a/b", "/data/volumes": "", "/data": "", "/": ""} {
		if got, _ := inside.Shows(Place{Device: disk, Path: path}); got != want {
			t.Errorf("%s: shown as %q, want %q", path, got, want)
		}
	}
	if _, ok := inside.Shows(Place{Device: memory, Path: "/data/volume"}); ok {
		t.Error("of another file system")
	}
}

// TestOwnMounts: an agent that has the host's files somewhere keeps its other mounts, a debugger in them has none.
func TestOwnMounts(t *testing.T) {
	t.Parallel()
	root := Mount{Device: [2]int{8, 1}, Root: "/", Mountpoint: "/"}
	at := func(m Mount, mountpoint string) Mount {
		m.Mountpoint = mountpoint
		return m
	}
	overlay, run, data := Mount{Device: [2]int{0, 50}, Root: "/", Mountpoint: "/"}, Mount{Device: [2]int{0, 30}, Root: "/"}, Mount{Device: [2]int{8, 1}, Root: "/data"}
	host := []Mount{root, at(run, "/run")}
	agent := []Mount{overlay, at(root, "/host"), at(run, "/host/run"), at(data, "/data"), at(run, "/hostrun")}
	if diff := cmp.Diff([]Mount{overlay, at(data, "/data"), at(run, "/hostrun")}, OwnMounts(agent, host), cmp.AllowUnexported(Mount{})); diff != "" {
		t.Error(diff)
	}
	if own := OwnMounts([]Mount{root, at(run, "/run")}, host); len(own) != 0 {
		t.Errorf("got %+v", own)
	}
	if own := OwnMounts(agent, nil); len(own) != len(agent) {
		t.Errorf("no host: %+v", own)
	}
}

// TestHolds: layers, and the directories around them that du shows.
func TestHolds(t *testing.T) {
	t.Parallel()
	l := Layers{Upper: "/s/9/fs", Work: "/s/9/work", Lower: []string{"/s/3/fs", "/b"}}
	for path, want := range map[string]string{
		"/s/9/fs/a": "/a in what the container has written", "/s/9/work/x": "/x in the work directory of the overlay", "/s/3/fs": "/ in a layer of the image, read-only",
		"/s/9": "with what the container has written", "/s/3": "with a layer of the image, read-only", "/b/c": "/c in a layer of the image, read-only", "/s": "", "/": "", "/s/90": "",
	} {
		if got, ok := l.Holds(path); got != want || ok != (want != "") {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	if got, ok := (Layers{Lower: []string{"/b"}}).Holds("/x"); ok {
		t.Errorf("no upper directory: %q", got)
	}
}

// TestLayersAreTheHosts: a container that mounts an overlay of its own says nothing about other containers' layers.
func TestLayersAreTheHosts(t *testing.T) {
	t.Parallel()
	own := Mount{Device: [2]int{0, 50}, Type: "overlay", Mountpoint: "/", options: "rw,lowerdir=/its/lower,upperdir=/its/upper,workdir=/its/work"}
	host := own
	host.Mountpoint, host.options = "/run/rootfs", "rw,lowerdir=3/fs:/b,upperdir=/s/9/fs,workdir=/s/9/work"
	want := Layers{Upper: "/s/9/fs", Work: "/s/9/work", Lower: []string{"/s/3/fs", "/b"}}
	if got, ok := LayersOf(own, []Mount{{Device: [2]int{0, 49}, Type: "overlay"}, host}); !ok || !cmp.Equal(got, want) {
		t.Errorf("got %+v, %v", got, ok)
	}
	if got, ok := LayersOf(own, nil); ok {
		t.Errorf("not mounted on the host: %+v", got)
	}
}
