package stream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

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
