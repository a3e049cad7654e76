// Package stream is the shim's streaming service: ExecSync, and the server behind the URLs of Exec, Attach and
// PortForward.
//
// [New] stores its options, [Server.Start] listens, and [Server.Close] ends every session and waits for it. The RPCs
// Exec, Attach and PortForward only validate a request and issue a URL with a one-time token. The work begins when a
// client connects. ExecSync runs its command at once.
//
// The protocols are those of k8s.io/cri-streaming, as in containerd and CRI-O, on the WebSocket connections of
// k8s.io/streaming and the SPDY connections of moby/spdystream, with limits on the memory that a client can use
// (internal/frames). The server and handlers of cri-streaming are not used:
//
//   - Its server hides the tokens and their requests, but this package needs the request before the protocol begins: for the
//     pod of a port-forward, and for settings without a CRI field (environment, directory, user, detaching). The handlers
//     run in an http.Server of our own, which rejects web pages (http.go) and detects when a client has gone (conn.go).
//     Then the processes of an exec are killed and the connections of a port-forward are closed.
//   - Its SPDY handlers leak goroutines, and sometimes the connection, if a client opens more streams than requested or
//     leaves while it opens them.
//   - Its WebSocket handler lacks v5.channel.k8s.io, which can close the input, and SPDY over WebSocket for port-forward.
//   - Its port-forward connections have no context that ends with the client or the pod.
//
// The package does not write container logs. It finds containers and sandboxes with package state. The addresses of a pod
// come from the engine and Options.PodIPs.
package stream
