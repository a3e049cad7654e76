// Package webguard keeps web pages away from HTTP servers on this machine that need no password. A page that a browser
// here shows can send requests to loopback. Its Origin header reveals it, and where a hostile name was pointed at this
// machine, the Host header does.
package webguard

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
)

// Check returns an error for a request to a host that is not this machine, or of a page of another origin.
func Check(r *http.Request) error {
	if !isHere(r.Host) {
		return fmt.Errorf("host %q is not this machine", r.Host)
	}
	return CheckOrigin(r)
}

// CheckOrigin returns an error for a request of a page of another origin. A server that is reached under any name of its
// machine can check no more.
func CheckOrigin(r *http.Request) error {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || u.Scheme != scheme || u.Host != r.Host {
			return fmt.Errorf("origin %q is not this server", origin)
		}
	}
	return nil
}

// isHere reports whether a Host header names this machine. The port is not compared:
// a kubelet passes on the header that its own client sent.
func isHere(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if name, err := os.Hostname(); strings.EqualFold(host, "localhost") || err == nil && strings.EqualFold(host, name) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	local, err := net.InterfaceAddrs()
	return ip.IsLoopback() || err == nil && slices.ContainsFunc(local, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == ip.Unmap()
	})
}
