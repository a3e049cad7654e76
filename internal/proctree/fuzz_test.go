package proctree

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
)

// FuzzStat checks that the command name, which the process chooses, does not affect other fields.
func FuzzStat(f *testing.F) {
	for _, name := range []string{"sh", ") R 1 1 1", "a b", "(((", "", "\n", "\xff\x00"} {
		f.Add(name, 7, 1, 7, uint64(99))
	}
	f.Fuzz(func(t *testing.T, name string, pid, ppid, session int, start uint64) {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(pid))
		line := fmt.Sprintf("%d (%s) S %d 5 %d %s%d%s\n", pid, name, ppid, session, strings.Repeat("0 ", 15), start, strings.Repeat(" 0", 30))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		proc, err := procfs.NewFS(filepath.Dir(dir))
		if err != nil {
			t.Fatal(err)
		}
		process, err := proc.Proc(pid)
		if err != nil {
			t.Fatal(err)
		}
		st, err := process.Stat()
		if err != nil || st.PPID != ppid || st.Session != session || st.Starttime != start || st.State != "S" || dead(st) {
			t.Errorf("%q: got %+v, %v", line, st, err)
		}
	})
}
