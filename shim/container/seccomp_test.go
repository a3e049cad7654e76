package container

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestSeccompProfileIsAFile checks that a request cannot make the shim read endless data or block on a pipe.
func TestSeccompProfileIsAFile(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/zero", pipe, "/", "/nonexistent/profile.json"} {
		var f facts
		err := gatherProfiles(&f, &runtimeapi.LinuxContainerSecurityContext{Seccomp: &runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: path,
		}})
		if !errdefs.IsInvalidArgument(err) || len(f.seccomp) != 0 {
			t.Errorf("%s: got %d bytes, %v, want it to be refused", path, len(f.seccomp), err)
		}
	}
}
