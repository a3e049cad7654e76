package proctree

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
)

// TestNamed checks that only full ids match, whatever the form of the cgroup's name.
func TestNamed(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("0123456789abcdef", 4)
	for groups, want := range map[string]bool{
		"0::/docker/" + id + "\n":                                      true,
		"0::/\n1:name=systemd:/system.slice/docker-" + id + ".scope\n": true,
		"12:pids:/kubepods/besteffort/podx/" + id + "/init\n":          true,
		"0::/system.slice:docker:" + id + "\n":                         true,
		"0::/docker/" + id + "0\n":                                     false,
		"0::/docker/a" + id + "\n":                                     false,
		"0::/docker/" + id[:63] + "\n":                                 false,
		"0::/\n":                                                       false,
	} {
		if got := Named(groups, id); got != want {
			t.Errorf("%q: got %v, want %v", groups, got, want)
		}
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	root := Process{PID: 10, Start: 100}
	all := []procfs.ProcStat{
		{PID: 12, PPID: 11, Session: 12, State: "S", Starttime: 120}, // listed before its parent
		{PID: 1, PPID: 0, Session: 1, State: "S", Starttime: 1},
		{PID: 10, PPID: 1, Session: 10, State: "S", Starttime: 100},
		{PID: 11, PPID: 10, Session: 11, State: "S", Starttime: 110}, // own session, still a child
		{PID: 13, PPID: 1, Session: 10, State: "S", Starttime: 130},  // adopted by init, same session
		{PID: 14, PPID: 10, Session: 10, State: "Z", Starttime: 140}, // already dead
		{PID: 20, PPID: 1, Session: 20, State: "S", Starttime: 150},  // unrelated
	}
	want := []Process{root, {11, 110}, {13, 130}, {12, 120}}
	if diff := cmp.Diff(want, members(root, all)); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
	if got := members(Process{PID: 10, Start: 99}, all); got != nil {
		t.Errorf("tree of a process whose pid was used again: got %v, want none", got)
	}
}

// start runs a shell script in its own session and returns the pids that it prints, one per line.
func start(t *testing.T, script string, lines int) (Process, []int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // a shell may have its command as a child
		_ = cmd.Wait()
	})
	p, err := Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for scan := bufio.NewScanner(out); len(pids) < lines && scan.Scan(); {
		pid, err := strconv.Atoi(strings.TrimSpace(scan.Text()))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return p, pids
}

func TestKillTakesTheWholeTree(t *testing.T) {
	t.Parallel()
	// A child, a child with its own session, and an orphan.
	root, pids := start(t, `sleep 600 & echo $!
setsid sleep 600 & echo $!
(sleep 600 & echo $!)
wait`, 3)
	var tree []Process
	for _, pid := range pids {
		p, err := Find(pid)
		if err != nil {
			t.Fatal(err)
		}
		tree = append(tree, p)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Kill(ctx, root, ""); err != nil {
		t.Fatal(err)
	}
	for _, p := range append(tree, root) {
		if p.Alive() {
			t.Errorf("process %d lives", p.PID)
		}
	}
	if err := Kill(ctx, root, ""); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestWaitStopsWithItsContext(t *testing.T) {
	t.Parallel()
	p, _ := start(t, "sleep 600", 0)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
	if err := p.Wait(ctx); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestGoneProcess(t *testing.T) {
	t.Parallel()
	self, err := Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	reused := Process{PID: self.PID, Start: self.Start + 1}
	if reused.Alive() || !self.Alive() {
		t.Errorf("alive: got %v for another start time and %v for this process", reused.Alive(), self.Alive())
	}
	if err := reused.Wait(t.Context()); err != nil {
		t.Errorf("wait for a process that is gone: %v", err)
	}
	for _, id := range []string{"", "/", ":", "0", strings.Repeat("0123456789abcdef", 4)} {
		if self.InContainer(id) {
			t.Errorf("this process is not in container %q", id)
		}
	}
	if _, err := Find(-1); !errors.Is(err, ErrGone) {
		t.Errorf("pid -1: got %v, want ErrGone", err)
	}
}
