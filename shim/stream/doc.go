// Package stream is the shim's service for everything that streams: ExecSync, and
// the server behind the URLs of Exec, Attach and PortForward.
//
// [New] stores what it is given, [Server.Start] listens, [Server.Close] ends
// every session and waits for it. An RPC only checks its request and issues a
// URL with a token that works once; the work begins when a client connects.
//
// The protocols are those of k8s.io/cri-streaming, as in containerd and CRI-O, on the WebSocket
// connections of k8s.io/streaming and the SPDY connections of moby/spdystream, with a
// bound on what a client can make the shim hold (internal/frames). Its server and handlers are
// left out:
//
//   - its tokens, and the requests they stand for, are hidden in its server, while much here
//     needs the request before the protocol begins: the pod of a port-forward, and what CRI
//     has no field for (environment, directory, user, detaching). The handlers run in an
//     http.Server of our own, which keeps web pages away (http.go) and knows when a client
//     has gone (conn.go): then what an exec started is killed, and the connections of a
//     port-forward are closed.
//   - its SPDY handlers leave goroutines, and sometimes the connection, behind for good when
//     a client opens more streams than it asked for, or goes while it opens them.
//   - its WebSocket handler knows no v5.channel.k8s.io, which can end the input, and no SPDY
//     inside a WebSocket for a port-forward.
//   - its port-forward gives a connection no context that ends with its client or its pod.
//
// The package does not write container logs and does not know about pods beyond
// the labels that tell a container from a sandbox.
package stream
