package spdyframe

import (
	"sync"
	"testing"
)

// Small pieces are passed on at once, and so is the first large one.
func TestPaceOfLittle(t *testing.T) {
	var p Pace
	for range 1000 {
		p.Wait(smallest - 1)
	}
	if !p.last.IsZero() {
		t.Error("small reads were taken for a stream")
	}
}

// However many streams there are, the places of those that may wait come back.
func TestPaceGivesItsPlaceBack(t *testing.T) {
	var all sync.WaitGroup
	for range 4 * gatherers {
		all.Go(func() {
			var p Pace
			for range 5 {
				p.Wait(largest)
			}
		})
	}
	all.Wait()
	if n := gathering.Load(); n != 0 {
		t.Errorf("%d still wait", n)
	}
}
