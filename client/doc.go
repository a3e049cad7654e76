// Package client finds the CRI endpoint of a node and talks to it.
//
// [Connect] is the way in: it takes what flags, environment and config file
// say, probes the known sockets where they say nothing, starts the embedded
// dockershim where there is only Docker, and returns a [Conn] whose Runtime
// and Image clients speak CRI v1 whatever version the runtime knows. [Discover]
// makes the same decision for people to look at. [LoadConfig] reads crictl's
// config file. The Conn also turns what people type (names, pod/container,
// id prefixes) into containers and pods.
//
// In reading order: endpoint.go has the forms of endpoints; connect.go takes the
// endpoint that was given, or the one that discover.go chooses, and opens it; probe.go
// finds out what an address is; dial.go makes the gRPC connection;
// calls.go limits each call and errors.go words its error.
//
// The package does not know Docker: how the shim is started is a function
// that the caller passes in, so that its tests need no engine.
package client
