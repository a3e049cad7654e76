package proctree

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArgsAndNow(t *testing.T) {
	t.Parallel()
	before, err := Now()
	if err != nil {
		t.Fatal(err)
	}
	p, _ := start(t, "echo $$; sleep 600; true", 1)
	after, err := Now()
	if err != nil {
		t.Fatal(err)
	}
	if p.Start < before || p.Start > after {
		t.Errorf("started at %d, between %d and %d", p.Start, before, after)
	}
	if diff := cmp.Diff([]string{"sh", "-c", "echo $$; sleep 600; true"}, p.Args()); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if args := (Process{PID: os.Getpid(), Start: p.Start + 1<<40}).Args(); args != nil {
		t.Errorf("of a process that is gone: got %q", args)
	}
}
