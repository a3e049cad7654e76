// Package test has what tests of several packages share.
package test

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// Missing ends a test that needs what this machine does not have: it is skipped, and fails
// where CRISHIM_REQUIRE_ENGINE is 1, as in CI, so that no test is left out unnoticed. What
// can be installed belongs into hack/engine/packages.sh.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CRISHIM_REQUIRE_ENGINE") == "1" {
		t.Fatalf("with CRISHIM_REQUIRE_ENGINE=1 this test has to run: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Emulator returns the program that runs programs for arch here, "" where none has to.
func Emulator(t testing.TB, arch string) string {
	t.Helper()
	if arch == runtime.GOARCH {
		return ""
	}
	name := map[string]string{"amd64": "qemu-x86_64", "arm64": "qemu-aarch64"}[arch]
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, "no %s to run programs for %s", name, arch)
	}
	return path
}
