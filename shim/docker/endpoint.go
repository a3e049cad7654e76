package docker

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/cli/cli/connhelper"
	"github.com/docker/docker/client"
	"github.com/docker/go-connections/tlsconfig"
)

// Options say which engine to use. The zero value asks the environment, the
// current docker context and the usual sockets, in that order.
type Options struct {
	Host      string                      // unix://, tcp://, ssh://, http(s)://; "" to find one
	LookupEnv func(string) (string, bool) // nil: the process environment
	Home      string                      // "" : $HOME
	Observe   Observe                     // told of every call; may be nil

	// RequestTimeout is how long the engine may take for a request that ends with
	// its answer; 0 is no limit. A stop has its grace on top; pulls, logs and
	// sessions have no limit.
	RequestTimeout time.Duration

	// APIVersion is what the engine said that it speaks, where somebody has
	// asked; "" asks it before the first call.
	APIVersion string
}

// Endpoint is an engine's address.
type Endpoint struct {
	Host   string
	Source string // what named it, for people: "DOCKER_HOST", "docker context x", "default socket"
	TLS    *TLS
}

// TLS names the files of a TLS connection.
type TLS struct {
	CA, Cert, Key string
	SkipVerify    bool
}

// Resolve finds the engine's endpoint. It does not connect.
func Resolve(o Options) (Endpoint, error) {
	env := environment(o)
	if o.Host != "" {
		return Endpoint{Host: o.Host, Source: "given", TLS: env.tls()}, nil
	}
	if host := env.get("DOCKER_HOST"); host != "" {
		return Endpoint{Host: host, Source: "DOCKER_HOST", TLS: env.tls()}, nil
	}
	name, err := env.currentContext()
	if err != nil {
		return Endpoint{}, err
	}
	if name != "" {
		return env.contextEndpoint(name)
	}
	return Endpoint{Host: "unix://" + env.usualSocket(), Source: "default socket"}, nil
}

// usualSocket is the first socket that exists of those an engine uses when
// nobody tells it otherwise; the system's own where none does.
func (e env) usualSocket() string {
	const system = "/var/run/docker.sock"
	candidates := []string{system}
	if dir := e.get("XDG_RUNTIME_DIR"); dir != "" {
		candidates = append(candidates, filepath.Join(dir, "docker.sock"))
	}
	candidates = append(candidates, filepath.Join(e.home, ".docker/run/docker.sock"), filepath.Join(e.home, ".docker/desktop/docker.sock"))
	for _, path := range candidates {
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			return path
		}
	}
	return system
}

// transport is what carries the requests, and what tells the library of it.
func (e Endpoint) transport() (*http.Transport, []client.Opt, error) {
	helper, err := connhelper.GetConnectionHelper(e.Host)
	if err != nil {
		return nil, nil, fmt.Errorf("docker engine at %s: %w", e.Host, err)
	}
	if helper != nil {
		return &http.Transport{DialContext: helper.Dialer}, []client.Opt{client.WithHost(helper.Host), client.WithDialContext(helper.Dialer)}, nil
	}
	t := &http.Transport{}
	if e.TLS != nil {
		t.TLSClientConfig, err = tlsconfig.Client(tlsconfig.Options{
			CAFile: e.TLS.CA, CertFile: e.TLS.Cert, KeyFile: e.TLS.Key, InsecureSkipVerify: e.TLS.SkipVerify, ExclusiveRootPools: true,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("TLS for the docker engine at %s: %w", e.Host, err)
		}
	}
	return t, []client.Opt{client.WithHost(e.Host)}, nil
}

// IsLocal reports whether the engine is reached over a unix socket.
func (e Endpoint) IsLocal() bool { return strings.HasPrefix(e.Host, "unix://") }
