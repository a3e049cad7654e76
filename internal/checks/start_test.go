package checks

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/crishim/crishim/internal/test"
)

// Limits of `crishim --version`, which each command pays too. They do not depend on the speed of the machine: each 4 KiB
// of the heap and each page of the program that is touched is a page fault.
const (
	maxPackages = 322       // of 319
	maxBytes    = 2_050_000 // of 1,963,000 to 2,009,000, by the environment
	maxFaults   = 1_700     // of 1,450 to 1,550
)

// TestStart counts the work of package initialisation, and names packages that came since testdata/start was written
// by CRISHIM_UPDATE_GOLDEN=1.
func TestStart(t *testing.T) {
	const list = "testdata/start"
	cmd := exec.CommandContext(t.Context(), binary(t), "--version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	var packages []string
	bytes := 0
	for _, line := range regexp.MustCompile(`(?m)^init (\S+) @.* (\d+) bytes`).FindAllStringSubmatch(trace.String(), -1) {
		n, err := strconv.Atoi(line[2])
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, line[1])
		bytes += n
	}
	faults := cmd.ProcessState.SysUsage().(*syscall.Rusage).Minflt
	t.Logf("%d packages, %d bytes, %d page faults", len(packages), bytes, faults)

	slices.Sort(packages)
	if os.Getenv("CRISHIM_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(list, []byte(strings.Join(packages, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if len(packages) > maxPackages || bytes > maxBytes || faults > maxFaults {
		known := strings.Fields(test.Page(t, list))
		t.Errorf("%d packages, %d bytes and %d page faults, want at most %d, %d and %d; new are %q",
			len(packages), bytes, faults, maxPackages, maxBytes, maxFaults,
			slices.DeleteFunc(packages, func(name string) bool { return slices.Contains(known, name) }))
	}
}
