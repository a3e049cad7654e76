// Package stream is the shim's service for everything that streams: ExecSync, and
// the server behind the URLs of Exec, Attach and PortForward.
//
// [New] stores what it is given, [Server.Start] listens, [Server.Close] ends
// every session and waits for it. An RPC only checks its request and hands out a
// URL with a token that works once; the work begins when a client connects.
//
// Exec and attach are served by k8s.io/cri-streaming, as in containerd and CRI-O.
// Its SPDY handler keeps a few goroutines for good when a client opens more streams than
// it asked for, or goes while it opens them; only clients with a token can do that.
// What the library cannot do is done here:
//
//   - its server is left out, because its tokens and what they stand for are hidden
//     in it, while much here needs the request before the library has it: v5, the pod
//     of a port-forward, and what CRI has no field for (environment, directory, user,
//     detaching). The handlers run in an http.Server of our own, which keeps web pages
//     away (http.go) and knows when a client has gone (conn.go): then what an exec
//     started is killed, and the connections of a port-forward are closed.
//   - v5.channel.k8s.io, which can end the input over a WebSocket (session.go).
//   - port-forward (portforward.go): the library's gives a connection no context that
//     ends with its client or its pod, knows no SPDY inside a WebSocket, refuses a bad
//     port without a word, and leaves goroutines behind when a client goes while it opens
//     streams. SPDY itself is k8s.io/streaming's.
//
// The package does not write container logs and does not know about pods beyond
// the labels that tell a container from a sandbox.
package stream
