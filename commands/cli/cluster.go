package cli

import (
	"context"
	"net"
	"time"

	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/internal/kube"
)

// Cluster reaches the nodes of a cluster.
type Cluster struct {
	One      bool // the command line is for one node, and the result does not name the node
	Parallel int
	Timeout  time.Duration // time limit of a node; 0 for the verb's default
	Yes      bool
	// Nodes returns the names of the nodes. It is called after the command line has been checked.
	Nodes func(context.Context) ([]string, error)
	// Open returns a dialler for a node's runtime (client.Options.Relay). Close releases the node's dialler.
	Open  func(ctx context.Context, node string, line NodeLine) (func(ctx context.Context, network, address string) (net.Conn, error), error)
	Close func(node string)
	// There runs a command line on a node with these streams.
	There func(ctx context.Context, streams stream.Streams, node string, line NodeLine) error
}

// NodeLine is a command line for a node.
type NodeLine struct {
	Verb string
	OnNode
	Socket   string // value of --runtime-endpoint; "" for the node's default
	Deadline time.Duration

	Args    []string // without the program's name
	Input   bool     // reads standard input
	Columns int      // width of the terminal; 0: no terminal
}

// OnNode has the properties of a verb that runs on nodes.
type OnNode struct {
	Several bool   // runs on several nodes at once
	There   bool   // runs on the node, because it needs the node's files
	Rights  string // kube.RightsRead, ...; on several nodes, all but RightsRead need --yes
	Logs    bool   // reads or writes log files
}

// OnNodes returns how a verb runs on the nodes of a cluster.
func OnNodes(verb string) OnNode {
	switch verb {
	case "ps", "pods", "images", "inspect", "inspectp", "inspecti", "stats", "statsp", "metricsp", "metricdescs",
		"imagefsinfo", "version", "info", "runtime-config":
		return OnNode{Several: true, Rights: kube.RightsRead}
	case "exec", "pull", "stop", "restart", "rm", "kill", "pause", "unpause", "stopp", "rmp", "rmi":
		return OnNode{Several: true, Rights: kube.RightsChange}
	case "history", "diff", "events", "wait", "save":
		return OnNode{Rights: kube.RightsRead}
	case "logs", "describe", "why", "who", "df", "doctor", "dump", "endpoints", "config":
		return OnNode{There: true, Rights: kube.RightsRead, Logs: true}
	case "apply", "delete", "sync", "gc", "serve":
		return OnNode{There: true, Rights: kube.RightsHost, Logs: true}
	case "attach", "cp", "port-forward", "load", "update", "checkpoint", "update-runtime-config":
		return OnNode{Rights: kube.RightsChange}
	case "run", "runp", "create", "start", "debug":
		return OnNode{Rights: kube.RightsChange, Logs: true} // on Docker, the shim creates links in the log directory
	}
	return OnNode{Rights: kube.RightsRead} // top only reads; its keys run other verbs, which have rights of their own
}
