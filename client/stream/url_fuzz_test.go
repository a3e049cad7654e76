package stream

import (
	"net"
	"testing"
)

// FuzzCompleteURL checks that each streaming URL yields a host and port to dial, or an error.
func FuzzCompleteURL(f *testing.F) {
	for _, seed := range []string{
		"", "http://10.0.0.1:1234/exec/a?b=c", "https://node/exec/a", "//[::]:40123/cri/exec/t", "/exec/t", "exec/t", "ws://h", "wss://[fe80::1%25eth0]:1/x", "ftp://h/x",
		"http://:0/", "http://[::", "http://user:pass@h:1/x", "http://h:99999/x", "%zz", "http://\x00/",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := completeURL(raw)
		if err != nil {
			return
		}
		if u.Scheme != "http" && u.Scheme != "https" {
			t.Errorf("%q: scheme %q", raw, u.Scheme)
		}
		if host, port, err := net.SplitHostPort(u.Host); err != nil || host == "" || port == "" {
			t.Errorf("%q: host %q, %v", raw, u.Host, err)
		}
	})
}
