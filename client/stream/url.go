package stream

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// completeURL makes a dialable URL of what a runtime returned. Runtimes return
// absolute URLs, paths (to be completed by a kubelet, or by base here) and, as
// cri-dockerd does, "//[::]:port/path": an address to listen on, not to dial.
func completeURL(raw, base string) (*url.URL, error) {
	if base == "" {
		base = DefaultBase
	}
	if raw == "" {
		return nil, fmt.Errorf("the runtime returned an empty streaming URL")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("streaming URL: %w", err)
	}
	if u.Host == "" {
		b, err := url.Parse(base)
		if err != nil {
			return nil, fmt.Errorf("streaming base URL: %w", err)
		}
		u.Scheme, u.Host = b.Scheme, b.Host
		u.Path = "/" + strings.TrimPrefix(u.Path, "/")
	}
	switch u.Scheme {
	case "", "ws":
		u.Scheme = "http"
	case "wss":
		u.Scheme = "https"
	case "http", "https":
	default:
		return nil, fmt.Errorf("streaming URL: scheme %q: want http or https", u.Scheme)
	}
	u.Host = dialableHost(u)
	return u, nil
}

// dialableHost replaces the unspecified address by loopback and adds the port
// that the scheme implies.
func dialableHost(u *url.URL) string {
	host, port := u.Hostname(), u.Port()
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(host, port)
}
