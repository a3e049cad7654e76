package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"strings"
)

// Engine says which Docker engine the embedded shim works on.
type Engine struct {
	// Host is unix:///path, tcp://host:port or ssh://user@host.
	Host string
	// From says who named it, such as "DOCKER_HOST"; "" where it was found by default.
	From string
	// TLS is for a host that is reached by TCP and wants it.
	TLS *tls.Config
	// Err is why there is no way to it.
	Err error
	// Version and APIVersion are what the engine said while it was looked for,
	// so that nobody has to ask again; "" where it was not asked.
	Version, APIVersion string
}

// engines lists where the Docker engine may be, see [Options.Engines].
func (o *Options) engines(host string) []Engine {
	if o.Engines == nil {
		return []Engine{{Host: cmp.Or(host, "unix:///var/run/docker.sock")}}
	}
	return o.Engines(host)
}

// findEngine returns the first engine that answers, and what was tried. One
// that cannot be asked from here (ssh, TLS) is believed to be there: the
// shim will say what is wrong with it.
func (o *Options) findEngine(ctx context.Context) (*Engine, []Candidate) {
	var tried []Candidate
	for _, engine := range o.engines("") {
		a := Candidate{Endpoint: engine.Host, Kind: KindEngine, Name: "Docker"}
		if engine.From != "" {
			a.Name = "Docker, from " + engine.From
		}
		o.tryEngine(ctx, &engine, &a)
		tried = append(tried, a)
		if a.State == StateReady {
			return &engine, tried
		}
	}
	return nil, tried
}

// tryEngine asks an engine, and keeps in it what it answers.
func (o *Options) tryEngine(ctx context.Context, engine *Engine, a *Candidate) {
	scheme, address, ok := strings.Cut(engine.Host, "://")
	switch {
	case engine.Err != nil:
		a.State, a.Detail = StateFailed, engine.Err.Error()
		return
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
