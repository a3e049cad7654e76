// Package stream is the client side of the CRI's streaming URLs: it runs
// commands in containers, attaches to them and forwards ports to pods.
//
// A runtime answers Exec, Attach and PortForward with a URL that is good for
// one use. Exec, Attach and Forward dial that URL over SPDY or WebSocket and
// stay until the remote side ends, the context ends, or a signal asks them to.
// They own the terminal in the meantime: raw mode, window size, detach keys.
//
// The package knows nothing of names, pods or exit codes of the program around
// it; a command's own status comes back as an ExitError.
package stream
