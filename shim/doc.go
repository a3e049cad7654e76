// Package shim serves the Kubernetes Container Runtime Interface, as v1 and v1alpha2, on top of a Docker engine.
//
// A pod sandbox is an engine container that runs only a pause process and owns the pod's network, IPC and optionally
// PID namespaces. A container of the pod is an engine container that joins these namespaces. All state is in labels
// (package state), so only open sessions are lost when the shim ends, and several shims can use one engine.
//
// New wires the services together, Start begins background work, Serve answers requests on a listener, and Close ends
// everything. StartEmbedded serves a single command on a private socket. service.go combines the services of the
// subpackages, whose methods are most of the RPCs.
//
// The streaming library logs with klog, which is global and writes to stderr by default. The shim does not change it.
// crishim disables it in cli.SystemProcess; other programs that start a shim can call klog.SetLogger.
package shim
