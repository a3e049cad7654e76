package verbs

import (
	"context"
	"runtime"
	"testing"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// A page of ids has one sample, and is shown no more often than another page.
func TestQuietStatsWaitBetweenPages(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	samples := func() int {
		n := 0
		for _, method := range c.stub.Methods() {
			if method == "ListContainerStats" {
				n++
			}
		}
		return n
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan result)
	go func() { ended <- c.runAs(ctx, "crishim", "stats", "-q", "--watch", "--seconds", "360000") }()
	for samples() == 0 {
		runtime.Gosched()
	}
	for range 5 {
		c.run("version") // meanwhile
	}
	cancel()
	if r := <-ended; r.code != 0 || samples() != 1 {
		t.Errorf("%d samples, %+v", samples(), r)
	}
}
