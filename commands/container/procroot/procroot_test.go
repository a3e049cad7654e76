package procroot

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/test"
)

// container returns a directory with a file next to it that no path may reach. The container is hostile: its links
// point out in every way.
func container(t *testing.T) (*Root, string) {
	t.Helper()
	base := t.TempDir()
	top := filepath.Join(base, "container")
	for _, dir := range []string{"etc", "var", "proc"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(base, "outside"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		"var/absolute": "/etc", "climbing": "../../../../../../../../etc", "var/out": "../../outside", "host": filepath.Join(base, "outside"),
		"loop": "loop", "chain": "var/absolute", "magic": "/proc/self/cwd", "dangling": "nowhere",
	} {
		if err := os.Symlink(to, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"container/etc/name": "inside", "outside/name": "outside", "container/file": ""} {
		if err := os.WriteFile(filepath.Join(base, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	r := &Root{dir: dir}
	t.Cleanup(func() { _ = r.Close() })
	return r, base
}

func TestDirStaysInside(t *testing.T) {
	r, _ := container(t)
	cases := map[string]string{ // path to the content of its file "name"; empty without such a directory
		"/etc": "inside", "etc/": "inside", "/var/absolute": "inside", "/climbing": "inside", "/chain/.": "inside",
		"/../../etc": "inside", "../etc": "inside", "/var/../chain": "inside",
		"/var/out": "", "/host": "", "/loop": "", "/file": "", "/no/such": "", "/file/x": "", "/dangling": "",
	}
	for path, want := range cases {
		t.Run(path, func(t *testing.T) {
			dir, err := r.Dir(path)
			if isDir, _ := r.IsDir(path); isDir != (want != "") {
				t.Errorf("a directory: %v", isDir)
			}
			if want == "" {
				if err == nil {
					t.Error("it was opened")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			if got, err := dir.ReadFile("name"); string(got) != want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// TestDirFollowsNoLinkOfProc: the kernel follows the links of /proc by itself, past any check of paths.
func TestDirFollowsNoLinkOfProc(t *testing.T) {
	dir, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	r := &Root{dir: dir}
	defer r.Close()
	for _, path := range []string{"/proc/self/root", "/proc/self/root/etc", "/proc/self/cwd", "/proc/self/fd/0/x"} {
		d, err := r.Dir(path)
		if err == nil {
			_ = d.Close()
			t.Errorf("%s was opened", path)
		}
	}
	if is, err := r.IsDir("/proc/self"); !is || err != nil {
		t.Errorf("/proc/self: %v, %v", is, err)
	}
}

func TestIsDir(t *testing.T) {
	r, _ := container(t)
	for path, want := range map[string]bool{"/": true, "": true, "/file": false, "/file/x": false, "/no": false, "/climbing": true} {
		if got, err := r.IsDir(path); got != want || err != nil {
			t.Errorf("%q: got %v, %v", path, got, err)
		}
	}
	if _, err := r.IsDir("/loop"); err == nil {
		t.Error("a loop is neither a directory nor none")
	}
}

// TestResolveDuringRenames: a rename anywhere on the host makes the kernel give up a path with "..".
func TestResolveDuringRenames(t *testing.T) {
	r, _ := container(t)
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	if err := os.Mkdir(one, 0o700); err != nil {
		t.Fatal(err)
	}
	done, renamed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(renamed)
		for {
			select {
			case <-done:
				return
			default:
				_, _ = os.Rename(one, two), os.Rename(two, one)
			}
		}
	}()
	for range 5000 {
		if _, err := r.IsDir("/climbing"); err != nil {
			t.Error(err)
			break
		}
	}
	close(done)
	<-renamed
}

func TestOpenRefuses(t *testing.T) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		test.Missing(t, "%v", err)
	}
	group := strings.TrimSpace(string(groups))
	cases := map[string]struct {
		pid  int
		id   string
		want string
	}{
		"no such process":          {1 << 30, group, "not on this machine"},
		"process of somebody else": {os.Getpid(), strings.Repeat("0123456789abcdef", 4), "no cgroup of the container"},
		"part of a cgroup's name":  {os.Getpid(), group, "no cgroup of the container"},
		"container without an id":  {os.Getpid(), "", "no cgroup of the container"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := Open(c.pid, c.id)
			if err == nil {
				_ = r.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func anyGroup(string) bool { return true }

func TestOpenRefusesTheFilesOfThisMachine(t *testing.T) {
	r, err := open(os.Getpid(), anyGroup)
	if err == nil {
		_ = r.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "sees the files of this machine") {
		t.Errorf("got %v", err)
	}
}

// TestOpenInUserNamespace opens a process with the namespaces of a container, whose ids differ inside and outside.
func TestOpenInUserNamespace(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 7, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 8, HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		test.Missing(t, "no user namespaces here: %v", err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	r, err := open(cmd.Process.Pid, anyGroup)
	if errors.Is(err, os.ErrPermission) || err != nil && strings.Contains(err.Error(), "needs root") {
		test.Missing(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if u, g := r.Container(os.Getuid(), os.Getgid()); u != 7 || g != 8 {
		t.Errorf("owner in the container: %d:%d", u, g)
	}
	if u, g := r.Container(os.Getuid()+1, os.Getgid()+1); u != nobody || g != nobody {
		t.Errorf("owner without an id: %d:%d", u, g)
	}
	if u, g := r.Host(7, 8); u != os.Getuid() || g != os.Getgid() {
		t.Errorf("owner on the machine: %d:%d", u, g)
	}
	if u, g := r.Host(0, 0); u != keep || g != keep {
		t.Errorf("owner that the machine cannot have: %d:%d", u, g)
	}
	if u, g := r.Process(0, 0); u != os.Getuid() || g != os.Getgid() {
		t.Errorf("the process is %d:%d", u, g)
	}
}

func TestParseIDMap(t *testing.T) {
	m, err := parseIDMap([]byte("         0     100000      1000\n      2000          5         1\n"))
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int]int{0: 100000, 999: 100999, 1000: keep, 2000: 5} {
		if got := m.host(id); got != want {
			t.Errorf("host %d: got %d", id, got)
		}
		if back := m.container(m.host(id)); want != keep && back != id {
			t.Errorf("%d came back as %d", id, back)
		}
	}
	if _, err := parseIDMap([]byte("0 nonsense 1\n")); err == nil {
		t.Error("nonsense is a map")
	}
}
