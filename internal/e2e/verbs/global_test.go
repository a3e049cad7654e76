package verbs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crishim/crishim/internal/test/stubcri"
)

func TestProfiles(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	cpu, memory := filepath.Join(t.TempDir(), "cpu"), filepath.Join(t.TempDir(), "mem")
	c.run("--profile-cpu", cpu, "--profile-mem", memory, "ps", "-q").want(t, 0, "", "")
	for _, path := range []string{cpu, memory} {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("no profile in %s: %v", path, err)
		}
	}
	c.run("--profile-cpu", "/nonexistent/cpu", "ps").want(t, 1, "", "crishim: --profile-cpu: open /nonexistent/cpu: no such file or directory\n")
}
