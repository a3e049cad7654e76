// Package engine has the address of a Docker engine, which package client finds and the shim uses.
package engine

import (
	"crypto/tls"
	"strings"
)

// Endpoint is an engine's address.
type Endpoint struct {
	Host string      // unix:///path, tcp://host:port, ssh://user@host or http(s)://host:port
	From string      // what named it, such as "DOCKER_HOST"; "" for a usual socket
	TLS  *tls.Config // nil: none
	Err  error       // why it cannot be used
	// Batch keeps ssh from asking for passwords, which cannot be answered.
	Batch bool

	Version, APIVersion string // the answer to a probe; "" where there was none
}

// Socket returns the path of the unix socket that the engine is reached over, "" for any
// other address.
func (e Endpoint) Socket() string {
	path, ok := strings.CutPrefix(e.Host, "unix://")
	if !ok {
		return ""
	}
	return path
}

// IsLocal reports whether the engine is reached over a unix socket.
func (e Endpoint) IsLocal() bool { return e.Socket() != "" }
