// Package program runs other programs, such as credential helpers and network plugins, and
// kills them with all that they have started when their context ends.
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

// Command is exec.CommandContext, but the end of ctx kills the program together with what
// it has started: its process group where it leads one (SysProcAttr.Setpgid), which includes
// orphans, else its descendants.
func Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error {
		if cmd.SysProcAttr != nil && cmd.SysProcAttr.Setpgid {
			return unlessGone(syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
		}
		return unlessGone(killTree(cmd.Process.Pid))
	}
	return cmd
}

// unlessGone turns the error for a program that has ended already into os.ErrProcessDone.
func unlessGone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// killTree kills a process and its descendants. Each is stopped before its children are
// listed: it starts no more then, and none of their ids can be reused.
func killTree(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return os.ErrProcessDone
	}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread that has ended has none
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				_ = killTree(child)
			}
		}
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}
