package shim

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// writeTime is how long a scraper may take to read its answer. Profiles, which
// take as long as was asked for, have no such limit.
const writeTime = 30 * time.Second

// guardMetrics keeps web pages away from the metrics and profiles, which have no
// password: a browser tells a page's origin, and where a hostile name was pointed
// at this machine the Host header does. A listener that is not on loopback is
// scraped under whatever name the node has.
func guardMetrics(listener net.Addr, write time.Duration, next http.Handler) http.Handler {
	loopback := isLoopback(listener.String())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values("Origin")) > 0 || loopback && !isLoopback(r.Host) {
			http.Error(w, "this is not for web pages", http.StatusForbidden)
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/debug/") {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(write))
		}
		next.ServeHTTP(w, r)
	})
}

func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
