// Package stubcri is an in-memory CRI runtime for tests: a real gRPC server
// on a unix socket with pods, containers and images that change state as a
// runtime's do, lists with filters, events, stats, log files and a real
// streaming server.
//
// Its limits: a started container runs nothing and stays running until it is
// stopped or [Server.Exit] is called; exec runs the command on the machine
// of the test; attach echoes its input; port-forward connects to the port on
// 127.0.0.1. [Options] make it behave as other runtimes do: one that only
// knows v1alpha2, leaves calls unimplemented, ignores filters, or fails;
// [Profiles] are those for the runtimes that are in use.
package stubcri
