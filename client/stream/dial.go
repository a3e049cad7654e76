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

// dialHost opens the connection that carries a session. Proxies of the
// environment are ignored: streaming servers are on the node.
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
// absolute URLs, paths, which are completed with a kubelet's address, and, as
// cri-dockerd does, "//[::]:port/path": an address to listen on, not to dial.
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

// TLS has the settings for a streaming server on https. Without a CA the
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
