package stream

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
)

// guard keeps web pages away from the server. A page that a browser on this
// machine shows can send requests to loopback; its Origin gives it away, and
// where a hostile name was pointed at this machine, the Host header does.
type guard struct {
	base  *url.URL
	names map[string]bool
}

func newGuard(base *url.URL, allowed []string) *guard {
	g := &guard{base: base, names: map[string]bool{"localhost": true, base.Hostname(): true}}
	if name, err := os.Hostname(); err == nil {
		g.names[strings.ToLower(name)] = true
	}
	for _, name := range allowed {
		g.names[strings.ToLower(name)] = true
	}
	return g
}

func (g *guard) check(r *http.Request) error {
	if !g.ours(r.Host) {
		return fmt.Errorf("host %q is not this machine", r.Host)
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != g.base.Scheme || u.Host != r.Host {
			return fmt.Errorf("origin %q is not this server", origin)
		}
	}
	return nil
}

// ours says whether a Host header names this machine. The port is not compared:
// a kubelet passes on the header that its own client sent.
func (g *guard) ours(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if g.names[host] {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	return ip.IsLoopback() || localAddress(ip)
}

func localAddress(ip netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && prefix.Addr().Unmap() == ip.Unmap() {
			return true
		}
	}
	return false
}
