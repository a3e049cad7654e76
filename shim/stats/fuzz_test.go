package stats

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/cgroups"

	"github.com/crishim/crishim/shim/host"
)

// FuzzMeasure checks that no content of kernel files causes a panic. Pressure files are excluded, because the library
// panics on empty lines there.
func FuzzMeasure(f *testing.F) {
	f.Add("8:0 Read 1\n8:0 rbytes=1 wbytes=x\nTotal\n")
	f.Add("total_rss 1\ncache\n")
	f.Add("max\n")
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		for _, name := range []string{"cpu.stat", "memory.current", "memory.stat", "memory.usage_in_bytes", "cpuacct.usage", "io.stat", "cgroup.procs", "blkio.throttle.io_serviced_recursive"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, what := range []cgroups.Controller{shown, everything} {
			measure(host.CgroupDirs{"": dir}, what, when)
			measure(host.CgroupDirs{"cpu": dir, "cpuacct": dir, "memory": dir, "blkio": dir}, what, when)
		}
	})
}
