package cli

import (
	"runtime/debug"
	"testing"
)

func TestSetGC(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetGCPercent(ServeGC)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for _, test := range []struct {
		environment string
		want        int
	}{{"", commandGC}, {"50", ServeGC}} {
		t.Setenv("GOGC", test.environment)
		SetGC(commandGC)
		if got := debug.SetGCPercent(ServeGC); got != test.want {
			t.Errorf("with GOGC=%q: got %d, want %d", test.environment, got, test.want)
		}
	}
}
