package docker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/connhelper"
	"github.com/docker/cli/cli/context/store"
	"github.com/docker/docker/client"
	"github.com/docker/go-connections/tlsconfig"
	"go.opentelemetry.io/otel/trace"

	"github.com/crishim/crishim/internal/engine"
)

// Options select the engine, as the kubelet's ClientConfig did. The zero value tries the environment, the current
// docker context and the usual sockets, in that order.
type Options struct {
	Endpoint  *Endpoint                   // nil: determined by Host and LookupEnv
	Host      string                      // unix://, tcp://, ssh://, http(s)://; "" to discover it
	LookupEnv func(string) (string, bool) // nil: the process environment
	Observe   Observe                     // may be nil

	Tracer trace.TracerProvider // creates a span for each call; may be nil

	// RequestTimeout limits the calls that operations marks as limited. Other calls, for example events, logs, pulls and
	// disk usage, have no limit. The limit of a stop is longer by its grace period. 0: no limit.
	RequestTimeout time.Duration
}

type Endpoint = engine.Endpoint

// resolve returns the selected endpoint. If nothing selects an endpoint, it returns the first existing one of the usual
// sockets, or else /var/run/docker.sock. It does not connect.
func resolve(o Options) (Endpoint, error) {
	if o.Endpoint != nil {
		return *o.Endpoint, o.Endpoint.Err
	}
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	}
	all := Endpoints(o.Host, o.LookupEnv)
	for _, e := range all {
		if len(all) > 1 && isSocket(e.Host) {
			return e, nil
		}
	}
	return all[0], all[0].Err
}

func isSocket(host string) bool {
	info, err := os.Stat(strings.TrimPrefix(host, "unix://"))
	return err == nil && info.Mode()&fs.ModeSocket != 0
}

// Endpoints lists candidate endpoints in the docker command's order of precedence. An explicit setting is the only
// candidate.
func Endpoints(host string, lookup func(string) (string, bool)) []Endpoint {
	env := environment(lookup)
	if host != "" {
		return []Endpoint{env.withTLS(Endpoint{Host: host})}
	}
	if host := env.get("DOCKER_HOST"); host != "" {
		return []Endpoint{env.withTLS(Endpoint{Host: host, From: "DOCKER_HOST"})}
	}
	name, from := env.get("DOCKER_CONTEXT"), "DOCKER_CONTEXT"
	var usual Endpoint
	if dir := env.configDir(); name == "" && dir != "" {
		file, err := config.Load(dir)
		name, from = file.CurrentContext, "the current docker context"
		if err != nil && !errors.Is(err, fs.ErrPermission) { // docker ignores an unreadable config too
			name, usual.From = "", fmt.Sprintf("the default docker context (%v)", err)
		}
	}
	if name != "" && name != "default" {
		e, err := env.context(name)
		e.From, e.Err = fmt.Sprintf("%s %q", from, name), err
		return []Endpoint{e}
	}
	usual.Host = "unix:///var/run/docker.sock"
	out := []Endpoint{usual}
	if dir := env.get("XDG_RUNTIME_DIR"); dir != "" { // rootless
		usual.Host = "unix://" + filepath.Join(dir, "docker.sock")
		out = append(out, usual)
	}
	for _, desktop := range []string{".docker/run/docker.sock", ".docker/desktop/docker.sock"} {
		usual.Host = "unix://" + filepath.Join(env.get("HOME"), desktop)
		if env.get("HOME") != "" && isSocket(usual.Host) { // without HOME the path would be relative to the working directory
			out = append(out, usual)
		}
	}
	return out
}

type environment func(string) (string, bool)

func (lookup environment) get(key string) string {
	v, _ := lookup(key)
	return v
}

func (lookup environment) configDir() string {
	dir := lookup.get("DOCKER_CONFIG")
	if home := lookup.get("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".docker")
	}
	return dir
}

// withTLS applies DOCKER_TLS_VERIFY, which enables TLS with verification, and DOCKER_CERT_PATH, which enables TLS.
func (lookup environment) withTLS(e Endpoint) Endpoint {
	dir, verify := lookup.get("DOCKER_CERT_PATH"), lookup.get("DOCKER_TLS_VERIFY") != ""
	if e.IsLocal() || strings.HasPrefix(e.Host, "ssh:") || dir == "" && !verify {
		return e
	}
	if dir == "" {
		if dir = lookup.configDir(); dir == "" {
			e.Err = errors.New("DOCKER_TLS_VERIFY is set, but neither DOCKER_CERT_PATH nor HOME, where the certificates would be")
			return e
		}
	}
	e.TLS, e.Err = certificates(dir, tlsconfig.Options{CAFile: filepath.Join(dir, "ca.pem"), InsecureSkipVerify: !verify})
	return e
}

func (lookup environment) context(name string) (Endpoint, error) {
	type endpoint struct {
		Host          string
		SkipTLSVerify bool
	}
	if lookup.configDir() == "" {
		return Endpoint{}, errors.New("neither DOCKER_CONFIG nor HOME is set, where docker keeps its contexts")
	}
	contexts := store.New(filepath.Join(lookup.configDir(), "contexts"),
		store.NewConfig(nil, store.EndpointTypeGetter("docker", func() any { return &endpoint{} })))
	meta, err := contexts.GetMetadata(name)
	switch {
	case errdefs.IsNotFound(err):
		return Endpoint{}, fmt.Errorf("there is no docker context %q", name)
	case err != nil:
		return Endpoint{}, fmt.Errorf("docker %w", err)
	}
	found, _ := meta.Endpoints["docker"].(endpoint)
	if found.Host == "" {
		return Endpoint{}, fmt.Errorf("docker context %q has no address of a Docker engine", name)
	}
	e := Endpoint{Host: found.Host}
	e.TLS, err = certificates(filepath.Join(contexts.GetStorageInfo(name).TLSPath, "docker"), tlsconfig.Options{InsecureSkipVerify: found.SkipTLSVerify})
	return e, err
}

func certificates(dir string, o tlsconfig.Options) (*tls.Config, error) {
	for name, file := range map[string]*string{"ca.pem": &o.CAFile, "cert.pem": &o.CertFile, "key.pem": &o.KeyFile} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			*file = path
		}
	}
	if o.CAFile == "" && o.CertFile == "" && !o.InsecureSkipVerify {
		return nil, nil
	}
	o.ExclusiveRootPools = true
	c, err := tlsconfig.Client(o)
	if err != nil {
		return nil, fmt.Errorf("TLS for the docker engine: %w", err)
	}
	return c, nil
}

func dialer(e Endpoint) (*http.Transport, []client.Opt, error) {
	var flags []string
	if e.Batch {
		flags = []string{"-o", "BatchMode=yes"}
	}
	helper, err := connhelper.GetConnectionHelperWithSSHOpts(e.Host, flags)
	if err != nil {
		return nil, nil, fmt.Errorf("docker engine at %s: %w", engine.WithoutPassword(e.Host), err)
	}
	if helper != nil { // only an ssh:// host has a helper
		return &http.Transport{}, []client.Opt{client.WithHost(helper.Host), client.WithDialContext(helper.Dialer)}, nil
	}
	return &http.Transport{TLSClientConfig: e.TLS}, []client.Opt{client.WithHost(e.Host)}, nil
}
