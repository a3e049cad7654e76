// Package program runs programs of other people, such as credential helpers and network
// plugins, so that nothing of them goes on behind the back of who gave up on them.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Command is exec.CommandContext, but the end of ctx ends the program together with what
// it has started. One that leads a process group (SysProcAttr.Setpgid) takes the whole
// group along, also what no longer has a parent in it.
func Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error {
		if cmd.SysProcAttr != nil && cmd.SysProcAttr.Setpgid {
			return unlessGone(syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
		}
		return unlessGone(endTree(cmd.Process.Pid))
	}
	return cmd
}

// unlessGone makes a program that has ended by itself no failure of ending it.
func unlessGone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// endTree kills a process and what it started. Each is stopped before its children
// are listed: it starts no more then, and none of their ids can be taken by another.
func endTree(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return os.ErrProcessDone
	}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread that has ended has none
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				_ = endTree(child)
			}
		}
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}
