// Command crishim talks CRI to whatever container runtime a node has, and
// brings its own dockershim where there is only Docker.
package main

import (
	"context"
	"os"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
)

// version is set by the linker.
var version string

func main() {
	os.Exit(commands.Main(context.Background(), os.Args, cli.SystemProcess(version)))
}
