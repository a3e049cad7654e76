package enginestream

import (
	"testing"
	"time"
)

// TestOutputIsTimedByAnEvenClock: what is compared with each other is counted from
// one reading of the clock, never from the date.
func TestOutputIsTimedByAnEvenClock(t *testing.T) {
	first := clock()
	if first <= 0 || first > int64(365*24*time.Hour) {
		t.Errorf("the clock shows %s: is that a date?", time.Duration(first))
	}
	if second := clock(); second < first {
		t.Errorf("the clock went from %d to %d", first, second)
	}
}
