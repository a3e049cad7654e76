package gogc

import (
	"runtime/debug"
	"testing"
)

func TestSet(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetGCPercent(Serve)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for _, test := range []struct {
		environment string
		want        int
	}{{"", command}, {"50", Serve}} {
		t.Setenv("GOGC", test.environment)
		Set(command)
		if got := debug.SetGCPercent(Serve); got != test.want {
			t.Errorf("with GOGC=%q: got %d, want %d", test.environment, got, test.want)
		}
	}
}
