// Package engine defines the address of a Docker engine. Package client finds engines, and the shim connects to them.
package engine

import (
	"crypto/tls"
	"strings"

	"github.com/crishim/crishim/internal/lazyregexp"
)

type Endpoint struct {
	Host string      // unix:///path, tcp://host:port, ssh://user@host or http(s)://host:port
	From string      // origin, such as "DOCKER_HOST"; "" for a default socket
	TLS  *tls.Config // nil: no TLS
	Err  error       // reason why the engine cannot be used
	// Batch disables ssh's password prompts.
	Batch bool

	Version, APIVersion string // answer to a probe; "" if there was none
}

// password matches an address up to its password. The group is the part before the password.
var password = lazyregexp.New(`(?s)^((?:[^:@/]*://)?[^:]*):.*@`)

// WithoutPassword returns an address or endpoint for messages.
func WithoutPassword(address string) string { return password.ReplaceAllString(address, "$1:***@") }

// Socket returns the path of the engine's unix socket, or "" for other addresses.
func (e Endpoint) Socket() string {
	path, ok := strings.CutPrefix(e.Host, "unix://")
	if !ok {
		return ""
	}
	return path
}

// IsLocal reports whether the engine is reached over a unix socket.
func (e Endpoint) IsLocal() bool { return e.Socket() != "" }
