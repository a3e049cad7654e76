package commands

import (
	"cmp"
	"context"
	"fmt"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/shim"
	"github.com/crishim/crishim/shim/docker"
)

// connect resolves the endpoint and dials it.
func (env *Env) connect(ctx context.Context) (*client.Conn, error) {
	return env.connectShim(ctx, false)
}

// connectShim is connect. An embedded shim that stays does all that its settings say,
// one for a single command what matters to that.
func (env *Env) connectShim(ctx context.Context, stays bool) (*client.Conn, error) {
	options, err := env.clientOptions(stays)
	if err != nil {
		return nil, err
	}
	conn, err := client.Connect(ctx, options)
	if err != nil {
		return nil, err
	}
	if flag := env.global.shimFlag(); flag != "" && !conn.Embedded {
		return nil, join(fmt.Errorf("--%s is for the built-in dockershim, and %s is used: take -r docker://", flag, conn.RuntimeEndpoint), conn.Close())
	}
	return conn, nil
}

// clientOptions are flags over environment over config file.
func (env *Env) clientOptions(shimStays bool) (client.Options, error) {
	config, err := env.config()
	if err != nil {
		return client.Options{}, err
	}
	g := &env.global
	g.debug = g.debug || config.Debug
	o := client.Options{
		RuntimeEndpoint: cmp.Or(g.runtimeEndpoint, env.getenv("CONTAINER_RUNTIME_ENDPOINT")),
		ImageEndpoint:   cmp.Or(g.imageEndpoint, env.getenv("IMAGE_SERVICE_ENDPOINT")),
		ConnectTimeout:  cmp.Or(g.connectTimeout, env.ConnectTimeout),
		Timeout:         g.timeout,
		LookupEnv:       env.LookupEnv,
		Engines:         env.engines,
		Now:             env.Now,
	}
	embedded, err := env.shimOptions(config, shimStays)
	if err != nil {
		return client.Options{}, err
	}
	if env.StartShim != nil {
		o.StartShim = func(ctx context.Context, e client.Engine) (client.Shim, error) {
			return env.StartShim(ctx, e, embedded)
		}
	}
	if g.debug {
		o.Debug = env.debugf
	}
	// Without being asked for, a missing socket is not waited for.
	if g.maxRetriesGiven {
		o.MaxRetries = g.maxRetries
		return config.Options(o, client.KeyMaxRetries), nil
	}
	return config.Options(o), nil
}

// engines are the places where the Docker engine may be.
func (env *Env) engines(host string) []client.Engine {
	var out []client.Engine
	for _, e := range docker.Endpoints(host, env.LookupEnv) {
		out = append(out, client.Engine{Host: e.Host, From: e.From, TLS: e.TLS, Err: e.Err})
	}
	return out
}

// startShim starts the embedded dockershim on an engine that was found.
func startShim(ctx context.Context, e client.Engine, o shim.Options) (client.Shim, error) {
	o.Engine.Endpoint = &docker.Endpoint{Host: e.Host, From: e.From, TLS: e.TLS}
	o.Engine.APIVersion = e.APIVersion
	return shim.StartEmbedded(ctx, o)
}
