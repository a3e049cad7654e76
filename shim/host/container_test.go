package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const containerID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// record creates a /proc with one process and a cgroup root.
func record(t *testing.T, cgroup string, dirs ...string) (proc, root string) {
	t.Helper()
	proc, root = t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, "7"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "7", "cgroup"), []byte(cgroup), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return proc, root
}

func TestCgroupsV2(t *testing.T) {
	t.Parallel()
	proc, root := record(t, "0::/docker/"+containerID+"\n", "docker/"+containerID)
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := cgroupsIn(proc, root, hierarchies(root), 7, containerID)
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := got.Of("memory.max"); !got.V2() || err != nil || dir != filepath.Join(root, "docker/"+containerID) {
		t.Errorf("got %v, %s, %v", got, dir, err)
	}
}

func TestCgroupsV1(t *testing.T) {
	t.Parallel()
	proc, root := record(t, "4:memory:/docker/"+containerID+"\n3:cpu,cpuacct:/docker/"+containerID+"\n1:name=systemd:/docker/"+containerID+"\n0::/docker/"+containerID+"\n",
		"memory/docker/"+containerID, "cpu,cpuacct/docker/"+containerID, "cpu/docker/"+containerID)
	got, err := cgroupsIn(proc, root, hierarchies(root), 7, containerID)
	if err != nil {
		t.Fatal(err)
	}
	want := CgroupDirs{
		"memory": filepath.Join(root, "memory/docker/"+containerID), "cpu": filepath.Join(root, "cpu/docker/"+containerID),
		"cpuacct": filepath.Join(root, "cpu,cpuacct/docker/"+containerID),
	}
	if diff := cmp.Diff(want, got); diff != "" || got.V2() {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if dir, err := got.Of("hugetlb.2MB.limit_in_bytes"); err == nil {
		t.Errorf("a controller that is not there: got %s", dir)
	}
}

// TestCgroupsOfAStranger uses the pid of a remote engine, which is an unrelated process here.
func TestCgroupsOfAStranger(t *testing.T) {
	t.Parallel()
	proc, root := record(t, "0::/user.slice\n")
	for name, err := range map[string]error{
		"another process": second(cgroupsIn(proc, root, hierarchies(root), 7, containerID)),
		"no process":      second(cgroupsIn(proc, root, hierarchies(root), 8, containerID)),
		"no pid":          second(cgroupsIn(proc, root, hierarchies(root), 0, containerID)),
		"no id":           second(cgroupsIn(proc, root, hierarchies(root), 7, "")),
		"part of a name":  second(cgroupsIn(proc, root, hierarchies(root), 7, "user")),
	} {
		if !errors.Is(err, ErrElsewhere) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func second(_ CgroupDirs, err error) error { return err }

func TestNetNS(t *testing.T) {
	t.Parallel()
	if got, _ := NetNS("x", "/proc/self/ns/net", 0); got != "/proc/self/ns/net" {
		t.Errorf("the engine's file: got %q", got)
	}
	file := t.TempDir() + "/net"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := NetNS("x", file, 0); got != "" {
		t.Errorf("a file that is no namespace: got %q", got)
	}
	for _, id := range []string{"no such container", "/", strings.Repeat("0", 64)} {
		if got, _ := NetNS(id, "", os.Getpid()); got != "" {
			t.Errorf("a stranger's process as of %q: got %q", id, got)
		}
	}
}

// TestSystemdIsTold has systemctl write down its arguments.
func TestSystemdIsTold(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\necho \"$@\" >>\"$TOLD\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	told := filepath.Join(dir, "told")
	t.Setenv("TOLD", told)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	files := map[string]string{"memory.high": "1048576", "memory.min": "max", "memory.low": "no number", "pids.max": "5"}
	for _, dirs := range []CgroupDirs{
		{"": "/sys/fs/cgroup/system.slice/docker-1.scope"}, {"": "/sys/fs/cgroup/docker/1"}, {"memory": "/sys/fs/cgroup/memory/docker-1.scope"},
	} {
		dirs.TellSystemd(t.Context(), files)
	}
	noSwap := filepath.Join(dir, "docker-3.scope")
	if err := errors.Join(os.Mkdir(noSwap, 0o700), os.WriteFile(filepath.Join(noSwap, "memory.swap.max"), []byte("0\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	CgroupDirs{"": noSwap}.TellSystemd(t.Context(), map[string]string{"memory.high": "1048576"})
	CgroupDirs{"": "/sys/fs/cgroup/docker-2.scope"}.TellSystemd(t.Context(), map[string]string{"pids.max": "5"})
	const want = "set-property --runtime -- docker-1.scope MemoryHigh=1048576 MemoryMin=infinity\n" +
		"set-property --runtime -- docker-3.scope MemoryHigh=1048576 MemorySwapMax=0\n"
	if got, err := os.ReadFile(told); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
