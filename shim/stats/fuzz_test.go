package stats

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzMeasure: whatever a kernel writes into its files, nothing panics.
func FuzzMeasure(f *testing.F) {
	f.Add("some avg10=1 avg60=2 avg300=3 total=4\nfull\n")
	f.Add("8:0 Read 1\n8:0 rbytes=1 wbytes=x\nTotal\n")
	f.Add("eth0: 1 2 3 4 5 6 7 8 9 10 11 12\n:\n")
	f.Add("max\n")
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		for _, name := range []string{"cpu.stat", "cpu.pressure", "memory.current", "memory.stat", "io.stat", "cgroup.procs", "blkio.throttle.io_serviced_recursive"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		measureV2(dir, when)
		devicesV1(dir)
		parseNetwork(text)
	})
}
