package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// engineScore is the oom score of the engine's processes: the kernel takes
// nearly everything else before them.
const engineScore = -999

// accounted are the cgroup controllers of version 1 that a kubelet reads of the
// runtime's cgroup. The others are left to whoever started the engine.
func accounted() []string { return []string{"cpu", "cpuacct", "memory"} }

// KeepEngine puts the processes of the engine behind a unix socket into a cgroup,
// which is made where it is missing, and has the kernel spare them when memory is
// short. It does what the host allows and says what it does not.
func KeepEngine(socket, group string) error {
	pid, err := listener(socket)
	if err != nil {
		return err
	}
	return keepEngine("/proc", cgroupRoot, pid, group)
}

func keepEngine(proc, root string, pid int, group string) error {
	pids, err := engineProcesses(proc, pid)
	if err != nil {
		return err
	}
	dirs := []string{filepath.Join(root, group)}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		dirs = nil
		for _, controller := range accounted() {
			if _, err := os.Stat(filepath.Join(root, controller)); err == nil {
				dirs = append(dirs, filepath.Join(root, controller, group))
			}
		}
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, enter(dir, pids))
	}
	for _, pid := range pids {
		errs = append(errs, os.WriteFile(filepath.Join(proc, strconv.Itoa(pid), "oom_score_adj"), []byte(strconv.Itoa(engineScore)), 0o644))
	}
	return errors.Join(errs...)
}

func enter(dir string, pids []int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, pid := range pids {
		// One process with each write.
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// engineProcesses are the engine and the containerd that it has started. The
// shims of containers stay where they are. With socket activation it is systemd
// that listens, which must not be touched: then the engine is looked for.
func engineProcesses(proc string, pid int) ([]int, error) {
	names, parents, err := processes(proc)
	if err != nil {
		return nil, err
	}
	if names[pid] != "dockerd" {
		var engines []int
		for other, name := range names {
			if name == "dockerd" {
				engines = append(engines, other)
			}
		}
		if len(engines) != 1 {
			return nil, fmt.Errorf("%s listens for the engine, and there are %d processes named dockerd", names[pid], len(engines))
		}
		pid = engines[0]
	}
	found := []int{pid}
	for child, parent := range parents {
		if parent == pid && names[child] == "containerd" {
			found = append(found, child)
		}
	}
	slices.Sort(found)
	return found, nil
}

// processes gives the name and the parent of every process.
func processes(proc string) (names map[int]string, parents map[int]int, err error) {
	dirs, err := os.ReadDir(proc)
	if err != nil {
		return nil, nil, err
	}
	names, parents = map[int]string{}, map[int]int{}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(proc, dir.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		// "PID (NAME) STATE PPID ...", and a name may hold anything.
		head, tail, _ := strings.Cut(string(stat), "(")
		end := strings.LastIndexByte(tail, ')')
		if head == "" || end < 0 {
			continue
		}
		names[pid] = tail[:end]
		if fields := strings.Fields(tail[end+1:]); len(fields) > 1 {
			parents[pid], _ = strconv.Atoi(fields[1])
		}
	}
	return names, parents, nil
}

// listener is the process that listens on a unix socket of this host, as the
// kernel knows it.
func listener(socket string) (int, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, peerErr); err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}
