package reliability

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/test"
)

// TestNothingRuns checks that a command lists the probed endpoints on a node without a runtime.
func TestNothingRuns(t *testing.T) {
	// An empty /run in a private mount namespace contains no runtime's socket.
	script := `mount --make-rprivate / && mount -t tmpfs none /run && mount -t tmpfs none "$(readlink -f /var/lib)" || exit 99; exec crishim ps`
	cmd := exec.Command("unshare", "--mount", "sh", "-c", script)
	cmd.Env = append(cmd.Environ(), "HOME="+t.TempDir(), "CRI_CONFIG_FILE="+os.DevNull, "DOCKER_HOST=", "DOCKER_CONTEXT=", "CONTAINER_RUNTIME_ENDPOINT=")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	switch code := cmd.ProcessState.ExitCode(); {
	case code == 99 || strings.HasPrefix(stderr.String(), "unshare:"):
		test.Missing(t, "a mount namespace cannot be made here: %s", stderr.String())
	case code != 1 || stdout.Len() > 0:
		t.Errorf("got status %d and %q, want 1 and no output", code, stdout.String())
	}
	for _, want := range []string{
		"crishim: no container runtime found:\n",
		"/run/containerd/containerd.sock (containerd): there is no such socket\n",
		"crio.sock (CRI-O): there is no such socket\n",
		"docker.sock (Docker): there is no such socket\n",
	} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("stderr lacks %q:\n%s", want, stderr.String())
		}
	}
}
