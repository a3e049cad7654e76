package proctree

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzStat: a command's name, which its process chooses, changes nothing else of
// what is read about it; and nothing that a kernel writes ends in a panic.
func FuzzStat(f *testing.F) {
	for _, name := range []string{"sh", ") R 1 1 1", "a b", "(((", "", "\n", "\xff\x00"} {
		f.Add(name, 7, 1, 7, uint64(99))
	}
	f.Fuzz(func(t *testing.T, name string, pid, ppid, session int, start uint64) {
		_, _ = parseStat(name)
		line := fmt.Sprintf("%d (%s) S %d 5 %d %s%d 0 0\n", pid, name, ppid, session, strings.Repeat("0 ", 15), start)
		got, err := parseStat(line)
		want := stat{pid: pid, ppid: ppid, session: session, start: start, state: 'S'}
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", line, got, err, want)
		}
	})
}
