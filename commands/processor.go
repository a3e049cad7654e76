package commands

import (
	"os"
	"runtime"
)

// oneProcessor makes the process use one processor until the returned function
// is called. A stream passes through several goroutines; on one processor they
// hand over without waking each other up, which costs more than the copying.
// It is not for input: waiting for that holds a processor for a while.
//
// Tests, several of which share a process, keep theirs.
func (env *Env) oneProcessor() (undo func()) {
	if env.Exit == nil || os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	before := runtime.GOMAXPROCS(1)
	return func() { runtime.GOMAXPROCS(before) }
}
