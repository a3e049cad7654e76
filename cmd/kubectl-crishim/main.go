// Command kubectl-crishim is a kubectl plugin that runs crishim on the nodes of a cluster. Each node becomes an endpoint:
// a pod on the node (pods.go, manifest.go) relays connections to the runtime's socket through exec (relay.go). The plugin
// parses its own flags, and package commands runs the rest of the command line in this process. Only verbs that need the
// node's files run entirely in the pod. The pod is removed after the command line, unless it belongs to crishim's
// DaemonSet or --keep is given. The plugin creates nothing else in the cluster.
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
