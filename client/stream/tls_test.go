package stream

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/test"
)

// secured serves a container over TLS with a certificate for 127.0.0.1 and example.com. needClient makes the server ask
// for a client certificate.
func secured(t *testing.T, c *container, needClient bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(c.streams)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if needClient {
		s.TLS.ClientAuth = tls.RequireAnyClientCert
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes would be logged
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func caOf(t *testing.T, s *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// through rewrites a streaming URL to the TLS server.
func through(c *container, s *httptest.Server, raw string) string {
	return strings.Replace(raw, "http://"+c.http.Listener.Addr().String(), s.URL, 1)
}

func TestTLS(t *testing.T) {
	c := (&container{run: func(p process) error {
		if _, err := io.WriteString(p.Out, "over TLS"); err != nil {
			return err
		}
		return exit(3)
	}}).start(t)
	server, strict := secured(t, c, false), secured(t, c, true)
	ca := caOf(t, server)
	cert, key := test.Certificate(t)
	unknown := func(err error) bool { return errors.As(err, new(x509.UnknownAuthorityError)) }
	for _, test := range []struct {
		name   string
		server *httptest.Server
		tls    TLS
		fails  func(error) bool // nil: the session succeeds
	}{
		{name: "not verified", server: server},
		{name: "verified", server: server, tls: TLS{CA: ca}},
		{name: "another name of the server", server: server, tls: TLS{CA: ca, ServerName: "example.com"}},
		{name: "a name that it does not have", server: server, tls: TLS{CA: ca, ServerName: "elsewhere.test"},
			fails: func(err error) bool { return errors.As(err, new(x509.HostnameError)) }},
		{name: "another CA", server: server, tls: TLS{CA: cert}, fails: unknown},
		{name: "no such CA", server: server, tls: TLS{CA: "/nonexistent"}, fails: func(err error) bool { return errors.Is(err, os.ErrNotExist) }},
		{name: "a CA that is none", server: server, tls: TLS{CA: key}, fails: func(err error) bool { return strings.Contains(err.Error(), "no certificate in") }},
		{name: "client certificate", server: strict, tls: TLS{CA: ca, Cert: cert, Key: key}},
		{name: "no client certificate", server: strict, tls: TLS{CA: ca}, fails: func(error) bool { return true }},
	} {
		for _, transport := range []string{transportSPDY, transportWebSocket} {
			t.Run(test.name+" "+transport, func(t *testing.T) {
				var out bytes.Buffer
				s := Streams{Out: &out}
				u := through(c, test.server, c.execURL(t, s))
				err := within(t, "the session", func() error {
					return Run(t.Context(), u, s, Options{Transport: transport, TLS: test.tls})
				})
				var status *ExitError
				switch {
				case test.fails != nil:
					if err == nil || errors.As(err, &status) || !test.fails(err) || out.Len() > 0 {
						t.Errorf("got %v and %q", err, out.String())
					}
				case !errors.As(err, &status) || status.Code != 3 || out.String() != "over TLS":
					t.Errorf("got %v and %q", err, out.String())
				}
			})
		}
	}
}

func TestForwardOverTLS(t *testing.T) {
	c := pod(t)
	server := secured(t, c, false)
	ca := caOf(t, server)
	f := startForward(t, func(ctx context.Context) (string, error) {
		raw, err := c.forwardURL(ctx)
		return through(c, server, raw), err
	}, Options{TLS: TLS{CA: ca}}, ":80")
	wantAnswer(t, f.address())
}
