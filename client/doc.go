// Package client finds the CRI endpoint of a node and talks to it.
//
// [Connect] is the entry point. It takes the endpoint from its [Options], otherwise probes the known sockets, and starts
// the embedded dockershim if there is only Docker. The Runtime and Image clients of the returned [Conn] speak CRI v1
// whatever version the runtime has. [Discover] reports the same decision without acting on it. [LoadConfig] reads
// crictl's config file. The caller fills the options from flags, environment and config file. Conn also resolves names,
// pod/container references and id prefixes to containers and pods.
//
// In reading order: endpoint.go parses endpoints; connect.go opens the given endpoint, or the choice of discover.go;
// probe.go identifies the server at an address; dial.go makes the gRPC connection; calls.go limits each call;
// errors.go rewrites errors for users.
//
// The package does not know Docker. The caller passes a function that starts the shim, so the tests need no engine.
package client
