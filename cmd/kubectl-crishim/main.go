// Command kubectl-crishim runs crishim on the nodes of a cluster, as `kubectl crishim`: it makes them endpoints. It parses
// its own flags; package commands runs the rest of the command line in this process as for any other endpoint. A pod on
// each node (pods.go, manifest.go) relays connections to the runtime's socket through exec (relay.go). Only verbs that
// need the node's files run entirely in the pod. The pod is removed after the command line, unless it belongs to
// crishim's DaemonSet or --keep is given. The plugin creates nothing else in the cluster.
package main

import (
	"context"
	"os"

	"github.com/crishim/crishim/commands/cli"
)

// version is set by the linker.
var version string

func main() {
	os.Exit(runPlugin(context.Background(), os.Args[1:], cli.SystemProcess(version)))
}
