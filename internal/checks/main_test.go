// Package checks has the tests of the repository itself: pages, import rules, packaging, release. They link no crishim:
// what they run is bin/crishim.
package checks

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/crishim/crishim/internal/test"
)

// TestMain runs the tests in the root of the repository.
func TestMain(m *testing.M) {
	if err := test.EnterRoot(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// binary returns the program that make build makes.
func binary(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("bin/crishim")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		test.Missing(t, "no bin/crishim: make build first")
	}
	return path
}
