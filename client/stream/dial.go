package stream

import (
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

// dialHost opens the connection that carries a session. Proxies from the
// environment are not asked: streaming servers are on the node.
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
		return nil, fmt.Errorf("streaming URL: scheme %q: must be http or https", u.Scheme)
	}
	u.Host = dialableHost(u)
	return u, nil
}

// dialableHost returns the host and port of a streaming URL, seen from the server's machine:
// loopback for an unspecified address, and the scheme's port where there is none.
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

// TLS says how to talk to a streaming server over https. Without a CA the
// server's certificate is not verified: runtimes sign their own, and the URL
// came over a trusted socket.
type TLS struct {
	CA, Cert, Key string // PEM files
	ServerName    string // expected in the server's certificate
}

func (t TLS) check() error {
	if (t.Cert == "") != (t.Key == "") {
		return errors.New("a TLS client certificate needs both the certificate and the key")
	}
	_, err := t.config("") // a file that cannot be used is a mistake, whatever the server speaks
	return err
}

// config reads the files.
func (t TLS) config(host string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, NextProtos: []string{"http/1.1"}}
	if t.ServerName != "" {
		c.ServerName = t.ServerName
	}
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
