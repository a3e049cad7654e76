package stream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

const (
	upgradeTimeout    = 30 * time.Second
	closeTimeout      = time.Second
	closeWriteTimeout = closeTimeout / 5 // to hand it to this machine's kernel
	replyGrace        = 3 * time.Second
)

// dialHost opens the connection that carries a session. Proxies from the
// environment are not asked: streaming servers are on the node.
func dialHost(ctx context.Context, u *url.URL, t TLS) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("dial streaming server: %w", err)
	}
	if u.Scheme != "https" {
		return conn, nil
	}
	cfg, err := t.config(u.Hostname())
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

// spdyConn is a SPDY connection together with the network connection below it,
// which spdystream would not close while it waits for a silent peer.
type spdyConn struct {
	httpstream.Connection
	raw *frameConn
}

// dialSPDY upgrades a connection to SPDY with the given subprotocol. The
// context bounds the handshake only.
func dialSPDY(ctx context.Context, u *url.URL, t TLS, protocol string) (*spdyConn, error) {
	ctx, cancel := context.WithTimeout(ctx, upgradeTimeout)
	defer cancel()
	raw, err := dialHost(ctx, u, t)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	upgraded, err := upgrade(raw, u, protocol)
	if !stop() || err != nil {
		raw.Close()
		return nil, errors.Join(ctx.Err(), err)
	}
	conn, err := spdy.NewClientConnection(upgraded)
	if err != nil {
		return nil, fmt.Errorf("start SPDY: %w", err)
	}
	return &spdyConn{Connection: conn, raw: upgraded}, nil
}

// upgrade speaks the HTTP part of the handshake.
func upgrade(raw net.Conn, u *url.URL, protocol string) (*frameConn, error) {
	req := &http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Header: http.Header{
		httpstream.HeaderConnection:      {httpstream.HeaderUpgrade},
		httpstream.HeaderUpgrade:         {spdy.HeaderSpdy31},
		httpstream.HeaderProtocolVersion: {protocol},
	}}
	if err := req.Write(raw); err != nil {
		return nil, fmt.Errorf("ask streaming server: %w", err)
	}
	r := bufio.NewReaderSize(raw, readBuffer)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, fmt.Errorf("answer of streaming server: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(resp.Header.Get(httpstream.HeaderUpgrade), spdy.HeaderSpdy31) {
		defer resp.Body.Close()
		return nil, upgradeError(resp)
	}
	if got := resp.Header.Get(httpstream.HeaderProtocolVersion); got != "" && got != protocol {
		return nil, fmt.Errorf("streaming server chose protocol %q, not %q", got, protocol)
	}
	return &frameConn{Conn: raw, r: r}, nil
}

// upgradeError reads why a server refused; some answer in JSON.
func upgradeError(resp *http.Response) *UpgradeError {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // what arrived is enough for a message
	text := strings.TrimSpace(string(body))
	var st struct{ Message, Error string }
	if json.Unmarshal(body, &st) == nil && st.Message+st.Error != "" {
		text = st.Message + st.Error
	}
	if text == "" {
		text = http.StatusText(resp.StatusCode)
	}
	return &UpgradeError{Code: resp.StatusCode, Message: text}
}

// open creates a stream. It gives up when the connection breaks, where the
// library would wait for its timeout.
func (c *spdyConn) open(ctx context.Context, headers http.Header) (httpstream.Stream, error) {
	type result struct {
		stream httpstream.Stream
		err    error
	}
	done := make(chan result, 1)
	go func() {
		s, err := c.CreateStream(headers)
		done <- result{s, err}
	}()
	select {
	case r := <-done:
		return r.stream, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.CloseChan():
	}
	// A server that is done at once may have accepted the stream and closed
	// the connection; its answer is then already here and being looked at.
	select {
	case r := <-done:
		return r.stream, r.err
	case <-time.After(replyGrace):
		return nil, errTunnelLost
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// close ends the session if the peer listens, and closes the connection in any case. To
// one that is gone there is nothing to say, and the library would wait forever for
// the end of a stream that was opened after it went.
func (c *spdyConn) close() {
	select {
	case <-c.CloseChan():
		_ = c.raw.Close()
		return
	default:
	}
	// Input that the server does not read is in the way of what there is to say.
	_ = c.raw.SetWriteDeadline(time.Now().Add(closeWriteTimeout))
	said := make(chan struct{})
	go func() {
		defer close(said)
		_ = c.Close() // the connection goes away whether it reads this or not
	}()
	select {
	case <-said:
	case <-time.After(closeTimeout):
	}
	_ = c.raw.Close()
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
	u.Host = DialableHost(u)
	return u, nil
}

// DialableHost returns the host and port of a streaming URL, seen from the server's machine:
// loopback for an unspecified address, and the scheme's port where there is none.
func DialableHost(u *url.URL) string {
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
	return nil
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
