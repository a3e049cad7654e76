package client_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crishim/crishim/internal/test"
)

// TestMain checks for leaked goroutines. The test binary also acts as ssh for some tests.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "ssh" {
		os.Exit(fakeSSH(os.Args))
	}
	test.MainWithLeakCheck(m)
}
