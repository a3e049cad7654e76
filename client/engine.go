package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// engineCandidate is a place where a Docker engine may be.
type engineCandidate struct {
	engine Engine
	// from says who named it, such as "DOCKER_HOST".
	from string
	err  error
}

// engineCandidates lists where to look for a Docker engine. What the user
// set goes alone: an engine on the usual socket is not what they asked for.
func (o *Options) engineCandidates() []engineCandidate {
	if host := o.lookup("DOCKER_HOST"); host != "" {
		return []engineCandidate{{engine: Engine{Host: host, TLS: o.envTLS()}, from: "DOCKER_HOST"}}
	}
	name, from := o.lookup("DOCKER_CONTEXT"), "DOCKER_CONTEXT"
	if name == "" {
		name, from = o.currentContext(), "the current docker context"
	}
	if name != "" && name != "default" {
		e, err := o.contextEngine(name)
		return []engineCandidate{{engine: e, from: fmt.Sprintf("%s %q", from, name), err: err}}
	}
	var out []engineCandidate
	for _, path := range o.usualEngineSockets() {
		out = append(out, engineCandidate{engine: Engine{Host: "unix://" + path}})
	}
	return out
}

// dockerConfigDir is where docker keeps config.json and its contexts.
func (o *Options) dockerConfigDir() string {
	if dir := o.lookup("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	if home := o.lookup("HOME"); home != "" {
		return filepath.Join(home, ".docker")
	}
	return ""
}

func (o *Options) currentContext() string {
	dir := o.dockerConfigDir()
	if dir == "" {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return ""
	}
	var config struct {
		CurrentContext string `json:"currentContext"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		o.debugf("%s: %v", filepath.Join(dir, "config.json"), err)
		return ""
	}
	return config.CurrentContext
}

// contextEngine reads a docker context. Its directory is named after the
// hash of its name.
func (o *Options) contextEngine(name string) (Engine, error) {
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	dir := filepath.Join(o.dockerConfigDir(), "contexts")
	data, err := os.ReadFile(filepath.Join(dir, "meta", id, "meta.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return Engine{}, fmt.Errorf("there is no docker context %q", name)
	}
	if err != nil {
		return Engine{}, err
	}
	var meta struct {
		Endpoints map[string]struct {
			Host          string
			SkipTLSVerify bool
		}
	}
	if err := json.Unmarshal(data, &meta); err != nil {
		return Engine{}, fmt.Errorf("docker context %q: %w", name, err)
	}
	ep, ok := meta.Endpoints["docker"]
	if !ok || ep.Host == "" {
		return Engine{}, fmt.Errorf("docker context %q names no Docker engine", name)
	}
	return Engine{Host: ep.Host, TLS: tlsFiles(filepath.Join(dir, "tls", id, "docker"), ep.SkipTLSVerify)}, nil
}

// envTLS follows docker: certificates are used when DOCKER_TLS_VERIFY or
// DOCKER_CERT_PATH is set.
func (o *Options) envTLS() *EngineTLS {
	dir, verify := o.lookup("DOCKER_CERT_PATH"), o.lookup("DOCKER_TLS_VERIFY")
	if dir == "" && verify == "" {
		return nil
	}
	if dir == "" {
		dir = o.dockerConfigDir()
	}
	return tlsFiles(dir, verify == "")
}

func tlsFiles(dir string, skipVerify bool) *EngineTLS {
	file := func(name string) string {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			return ""
		}
		return path
	}
	t := &EngineTLS{CA: file("ca.pem"), Cert: file("cert.pem"), Key: file("key.pem"), SkipVerify: skipVerify}
	if *t == (EngineTLS{}) {
		return nil
	}
	return t
}

// findEngine returns the first engine that answers, and what was tried. One
// that cannot be asked from here (ssh, TLS) is believed to be there: the
// shim will say what is wrong with it.
func (o *Options) findEngine(ctx context.Context) (*Engine, []Attempt) {
	var tried []Attempt
	for _, c := range o.engineCandidates() {
		a := Attempt{Endpoint: c.engine.Host, Kind: KindEngine, Name: "Docker"}
		if c.from != "" {
			a.Name = "Docker, from " + c.from
		}
		if c.err != nil {
			a.State, a.Detail = StateFailed, c.err.Error()
		} else {
			o.tryEngine(ctx, &c.engine, &a)
		}
		tried = append(tried, a)
		if a.State == StateReady {
			return &c.engine, tried
		}
	}
	return nil, tried
}

// tryEngine asks an engine, and keeps in it what it answers.
func (o *Options) tryEngine(ctx context.Context, engine *Engine, a *Attempt) {
	scheme, address, ok := strings.Cut(engine.Host, "://")
	switch {
	case !ok:
		a.State, a.Detail = StateUnsupported, "it is no address with a scheme"
		return
	case scheme == "ssh", engine.TLS != nil:
		a.State, a.Detail = StateReady, "not asked beforehand"
		return
	case scheme != "unix" && scheme != "tcp" && scheme != "http":
		a.State, a.Detail = StateUnsupported, "the scheme "+scheme+" is not supported"
		return
	case scheme == "http":
		scheme = "tcp"
	}
	p := o.ping(ctx, scheme, address)
	switch {
	case p.docker:
		a.State, a.Detail = StateReady, "Docker engine "+p.version
		engine.Version, engine.APIVersion = p.version, p.api
	case p.http:
		a.State, a.Detail = StateHTTP, cmp.Or(p.refusal, "it speaks HTTP, but is no Docker engine")
	default:
		a.State, a.Detail = dialState(Endpoint{Network: scheme, Address: address}, p.err)
	}
}
