package checks

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// TestArm64 runs the program that hack/arm64.sh has built, which names it: no other test has one.
func TestArm64(t *testing.T) {
	program := os.Getenv("CRISHIM_TEST_ARM64")
	if program == "" {
		t.Skip("hack/arm64.sh runs this")
	}
	command := []string{program}
	if emulator := test.Emulator(t, "arm64"); emulator != "" {
		command = []string{emulator, program}
	}
	stub := stubcri.Start(t, stubcri.Options{})
	stub.AddImage("registry.example:5000/app:1")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--version"}, "crishim version"},
		{[]string{"-r", stub.Endpoint, "images", "-o", "json"}, `"registry.example:5000/app:1"`},
	} {
		line := slices.Concat(command, c.args)
		out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: got %s, %v, want %q in it", c.args, out, err, c.want)
		}
	}
}
