// Package webguard protects local HTTP servers without a password from web pages. A page in a local browser can send
// requests to loopback. The Origin header reveals requests from other sites. After DNS rebinding the origin looks like
// the server itself, but the Host header has the site's name.
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

// Check returns an error if the request's host is not this machine or the request comes from a page of another origin.
func Check(r *http.Request) error {
	if !isHere(r.Host) {
		return fmt.Errorf("host %q is not this machine", r.Host)
	}
	return CheckOrigin(r)
}

// CheckOrigin returns an error for a request from a page of another origin. It is for a server that is reachable under
// any name of its machine, so it cannot check the host.
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

// isHere reports whether a Host header names this machine. It ignores the port: a kubelet forwards the Host header of
// its own client, which has the kubelet's port.
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
