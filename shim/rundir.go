package shim

import (
	"context"
	"os"
	"path/filepath"
	"regexp"

	"github.com/crishim/crishim/internal/rundir"
	"github.com/crishim/crishim/shim/stream"
)

const (
	socketName  = "cri.sock"
	recordsName = "exec"
)

// shimDirs are the private directories of embedded shims. There is nothing in them
// but the socket and the records of running execs and of temporary containers.
var shimDirs = rundir.Kind{
	Name:    "shim",
	Entries: regexp.MustCompile(`cri\.sock|exec(/` + stream.RecordName + `)?|containers(/` + temporaryFile + `)?`),
}

func lookupOf(o Options) func(string) (string, bool) {
	if o.Engine.LookupEnv != nil {
		return o.Engine.LookupEnv
	}
	return os.LookupEnv
}

// sweep removes what commands of this user left that were killed before they
// could: run directories, with the processes and containers that are recorded
// there. A directory with containers that could not be removed stays for the next
// command.
func sweep(ctx context.Context, base, host string, engine stream.ExecInspector, containers containerLister) {
	rundir.Sweep(base, shimDirs, func(dir string) error {
		_ = stream.EndRecorded(ctx, filepath.Join(dir, recordsName), engine)
		return temporaries{dir: filepath.Join(dir, temporaryName), engine: host}.remove(ctx, containers)
	})
}
