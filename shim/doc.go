// Package shim serves the Kubernetes Container Runtime Interface, version 1,
// on top of a Docker engine.
//
// A pod sandbox is an engine container that runs only a pause process and owns
// the pod's network, IPC and, where asked for, PID namespaces. A container of
// the pod is an engine container that joins these namespaces. What ties them
// together is in labels (package state), so nothing is lost when the process
// that serves the shim ends, and two of them may work on one engine.
//
// New wires the services together, Start begins what runs in the background, Serve
// answers on a listener, Close ends all of it. StartEmbedded is for the length of
// one command, which dials its private socket. service.go has a method for each RPC.
//
// The streaming library logs with klog, which is one for the process and writes to
// standard error until it is told otherwise. The shim leaves it alone, because a package
// does not change its process: crishim turns it off in cli.SystemEnv, and another program
// that starts a shim calls klog.SetLogger itself.
package shim
