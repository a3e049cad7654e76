package proctree

import (
	"bufio"
	"context"
	"io"
	"syscall"
	"testing"
)

// TestTheEndTakesChildrenAlong kills a process tree, and a session with an orphan.
func TestTheEndTakesChildrenAlong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script  string
		session bool
	}{
		"a tree":    {`sh -c 'sleep 1000 & echo $!; wait' & wait`, false},
		"a session": {`(sleep 1000 & echo $!); sleep 1000`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cmd := Command(ctx, "sh", "-c", c.script)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: c.session}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			said := bufio.NewReader(out)
			if _, err := said.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			cancel()
			// The child holds stdout until it ends.
			if more, err := io.ReadAll(said); err != nil || len(more) > 0 {
				t.Errorf("got %q, %v", more, err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("the program ended well")
			}
		})
	}
}
