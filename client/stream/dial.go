package stream

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
)

// dialHost opens the connection that carries a session. It ignores proxies from the environment, because streaming
// servers run on the node.
func dialHost(ctx context.Context, u *url.URL, o Options) (net.Conn, error) {
	dial := o.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("dial streaming server: %w", err)
	}
	if u.Scheme != "https" {
		return conn, nil
	}
	cfg, err := o.TLS.config(u.Hostname())
	if err != nil {
		conn.Close()
		return nil, err
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("TLS with streaming server: %w", err)
	}
	return secure, nil
}

// completeURL makes a runtime's streaming URL dialable. Runtimes return absolute URLs, paths relative to a kubelet,
// and, as cri-dockerd does, "//[::]:port/path" with the listen address as host.
func completeURL(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, errors.New("the runtime returned an empty streaming URL")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("streaming URL: %w", err)
	}
	if u.Host == "" {
		u.Scheme, u.Host = "http", "127.0.0.1:10250"
		u.Path = "/" + strings.TrimPrefix(u.Path, "/")
	}
	switch u.Scheme {
	case "", "ws":
		u.Scheme = "http"
	case "wss":
		u.Scheme = "https"
	case "http", "https":
	default:
		return nil, fmt.Errorf("streaming URL: scheme %q: must be http or https", u.Scheme)
	}
	host, port := u.Hostname(), u.Port()
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	u.Host = net.JoinHostPort(host, port)
	return u, nil
}

// TLS configures connections to an https streaming server. Without a CA the server's certificate is not verified:
// runtimes sign their own, and the URL came over a trusted socket.
type TLS struct {
	CA, Cert, Key string // PEM files
	ServerName    string // name in the server's certificate
}

func (t TLS) check() error {
	if (t.Cert == "") != (t.Key == "") {
		return errors.New("a TLS client certificate needs both the certificate and the key")
	}
	_, err := t.config("") // an unreadable file is a usage error even if the server does not use TLS
	return err
}

func (t TLS) config(host string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cmp.Or(t.ServerName, host), NextProtos: []string{"http/1.1"}}
	if t.CA == "" {
		c.InsecureSkipVerify = true
	} else {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("TLS CA: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("TLS CA: no certificate in %s", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("TLS client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
