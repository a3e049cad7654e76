package client_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crishim/crishim/internal/test"
)

// TestMain finds what a connection leaves running, and makes this binary the
// ssh of some tests.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "ssh" {
		os.Exit(fakeSSH(os.Args))
	}
	test.MainWithLeakCheck(m)
}
