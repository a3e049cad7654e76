// Package reliability holds tests that break things on purpose around the whole
// program: serve is killed at every step, engines come and go under load, disks
// are full. docs/reliability.md says what is promised; nothing here is shipped.
package reliability

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A program is crishim as a user calls it, on one endpoint.
type program struct {
	t     testing.TB
	env   []string
	stdin string
}

// ended is how a command ended.
type ended struct {
	code     int // -1: by a signal
	out, err string
}

func (h host) crishim(t testing.TB, endpoint string) program {
	t.Helper()
	return program{t: t, env: append(os.Environ(),
		"CONTAINER_RUNTIME_ENDPOINT="+endpoint, "CRI_CONFIG_FILE="+os.DevNull, "DOCKER_HOST="+h.endpoint(), "CRISHIM_ROOT="+t.TempDir())}
}

// embedded is the endpoint of a shim that lives as long as the command.
func embedded(engine string) string { return "docker://" + engine[len("unix://"):] }

func (p program) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "crishim", args...)
	cmd.Env = p.env
	return cmd
}

// run waits for the command's end.
func (p program) run(ctx context.Context, args ...string) ended {
	p.t.Helper()
	return p.wait(p.command(ctx, args...))
}

func (p program) wait(cmd *exec.Cmd) ended {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader([]byte(p.stdin)), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return ended{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// file writes a file for a command.
func (p *pod) file(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// shell runs a script in which "crishim" is this program.
func (p program) shell(ctx context.Context, script string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Env = p.env
	return cmd
}

// newMounts gives a process a mount namespace of its own: what it mounts goes with it.
func newMounts() *syscall.SysProcAttr { return &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} }
