// Package test has helpers for the tests of several packages.
package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// Missing skips a test that this machine lacks a requirement for. With CRISHIM_REQUIRE_ENGINE=1, as in CI, the test
// fails instead. hack/engine/packages.sh lists the Debian packages to install.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CRISHIM_REQUIRE_ENGINE") == "1" {
		t.Fatalf("with CRISHIM_REQUIRE_ENGINE=1 this test has to run: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Emulator returns the program that runs binaries for arch on this machine, or "" if none is needed.
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

// Golden compares got with testdata/NAME.golden. With CRISHIM_UPDATE_GOLDEN=1 it updates the file.
func Golden(t testing.TB, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if os.Getenv("CRISHIM_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
}

// waitTimeout limits waits in tests. Only a failing test waits that long.
const waitTimeout = 2 * time.Minute

// Until polls a condition that has no event.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(waitTimeout); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Buffer is a buffer for concurrent use. The zero value is ready to use.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// leakTimeout is how long goroutines may take to end. Libraries close connections in the background, and may wait a
// second for a connection that the peer has closed.
const leakTimeout = 45 * time.Second

// MainWithLeakCheck is for TestMain. It runs the tests and fails if goroutines are left.
func MainWithLeakCheck(m *testing.M, options ...goleak.Option) {
	status := m.Run()
	if status == 0 {
		if err := findLeaks(options); err != nil {
			fmt.Fprintf(os.Stderr, "the tests passed, and left goroutines: %v\n", err)
			status = 1
		}
	}
	os.Exit(status)
}

func findLeaks(options []goleak.Option) (err error) {
	for end := time.Now().Add(leakTimeout); ; {
		if err = goleak.Find(options...); err == nil || time.Now().After(end) {
			return err
		}
	}
}
