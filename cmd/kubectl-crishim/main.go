// Command kubectl-crishim runs crishim on the nodes of a cluster, as `kubectl crishim`.
package main

import (
	"context"
	"os"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/kubectl"
)

// version is set by the linker.
var version string

func main() {
	os.Exit(kubectl.Main(context.Background(), os.Args[1:], cli.SystemProcess(version)))
}
