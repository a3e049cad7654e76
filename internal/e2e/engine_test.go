package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// user types commands in a directory of its own, with state of its own.
type user struct {
	t   *testing.T
	dir string
	env []string
}

// newUser is on the Docker engine of the tests, or with an empty endpoint on none. Nothing that the machine is set to
// decides what is seen.
func newUser(t *testing.T, endpoint string) *user {
	t.Helper()
	dir := t.TempDir()
	return &user{t, dir, append(os.Environ(), "CONTAINER_RUNTIME_ENDPOINT="+endpoint, "CRISHIM_ROOT="+filepath.Join(dir, "root"), "CRISHIM_LOGS="+filepath.Join(dir, "logs"), "HOME="+dir)}
}

// run runs a line of shell, and returns its outputs and whether it succeeded.
func (u *user) run(line string) (out, errs string, ok bool) {
	cmd := exec.Command("sh", "-c", line)
	cmd.Env, cmd.Dir = u.env, u.dir
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	return stdout.String(), stderr.String(), err == nil
}

// must runs a line that succeeds, and returns what it printed.
func (u *user) must(line string) string {
	u.t.Helper()
	out, errs, ok := u.run(line)
	if !ok {
		u.t.Fatalf("%s: failed\n%s%s", line, out, errs)
	}
	return out
}

// write writes a file below the directory.
func (u *user) write(name, text string) {
	u.t.Helper()
	path := filepath.Join(u.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		u.t.Fatal(err)
	}
}
