package test

import (
	"os/exec"
	"runtime"
	"testing"
)

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
