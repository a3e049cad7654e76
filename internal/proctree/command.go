package proctree

import (
	"context"
	"os"
	"os/exec"
	"time"
)

const killTime = 5 * time.Second

// Command is exec.CommandContext, but when ctx ends it kills the program together with its descendants. Orphans are
// included if the program leads a session (SysProcAttr.Setsid).
func Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error {
		program, err := Find(cmd.Process.Pid)
		if err != nil {
			return os.ErrProcessDone
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
		defer cancel()
		return Kill(ctx, program, "")
	}
	return cmd
}
