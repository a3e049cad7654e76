// Package stream is the shim's area for everything that streams: ExecSync, and
// the server behind the URLs of Exec, Attach and PortForward.
//
// [New] stores what it is given, [Server.Start] listens, [Server.Close] ends
// every session and waits for it. An RPC only checks its request and hands out a
// URL with a token that works once; the work begins when a client connects.
//
// The wire protocols come from k8s.io/streaming. The server around them is our
// own, because a session here must end when its client is gone: what an exec
// started is killed then, and every port-forward connection is closed. For that
// the connection itself is watched (conn.go), which the ready-made CRI streaming
// server has no place for; it also lacks v5.channel.k8s.io and long tokens.
//
// The package does not write container logs and does not know about pods beyond
// the labels that tell a container from a sandbox.
package stream
