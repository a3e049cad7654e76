// Package reliability tests the whole program under faults: serve is killed at each step, engines come and go under
// load, disks are full. docs/reliability.md lists the guarantees. The package has no product code.
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

// A program is crishim as a user runs it, with one endpoint.
type program struct {
	t     testing.TB
	env   []string
	stdin string
}

type ended struct {
	code     int // -1: killed by a signal
	out, err string
}

func (h host) crishim(t testing.TB, endpoint string) program {
	t.Helper()
	return program{t: t, env: append(os.Environ(),
		"CONTAINER_RUNTIME_ENDPOINT="+endpoint, "CRI_CONFIG_FILE="+os.DevNull, "DOCKER_HOST="+h.endpoint(), "CRISHIM_ROOT="+t.TempDir())}
}

// embedded returns the endpoint of an embedded shim, which lives as long as the command.
func embedded(engine string) string { return "docker://" + engine[len("unix://"):] }

func (p program) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "crishim", args...)
	cmd.Env = p.env
	return cmd
}

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

// newMounts gives a process its own mount namespace, so that its mounts disappear with it.
func newMounts() *syscall.SysProcAttr { return &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} }
