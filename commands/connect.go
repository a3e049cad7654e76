package commands

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/shim"
	"github.com/crishim/crishim/shim/docker"
)

// connect resolves the endpoint and dials it.
func (env *Env) connect(ctx context.Context) (*client.Conn, error) {
	options, err := env.clientOptions()
	if err != nil {
		return nil, err
	}
	return client.Connect(ctx, options)
}

// clientOptions are flags over environment over config file.
func (env *Env) clientOptions() (client.Options, error) {
	config, err := env.config()
	if err != nil {
		return client.Options{}, err
	}
	g := &env.global
	g.debug = g.debug || config.Debug
	o := client.Options{
		RuntimeEndpoint: firstOf(g.runtimeEndpoint, env.getenv("CONTAINER_RUNTIME_ENDPOINT")),
		ImageEndpoint:   firstOf(g.imageEndpoint, env.getenv("IMAGE_SERVICE_ENDPOINT")),
		ConnectTimeout:  cmp.Or(g.connectTimeout, env.ConnectTimeout),
		Timeout:         g.timeout,
		LookupEnv:       env.LookupEnv,
		StartShim:       env.StartShim,
		Now:             env.Now,
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

func firstOf(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}

// startShim starts the embedded dockershim.
func startShim(lookup func(string) (string, bool), log *slog.Logger) client.StartShim {
	return func(ctx context.Context, e client.Engine) (client.Shim, error) {
		return shim.StartEmbedded(ctx, shim.Options{Engine: engineOptions(e, lookup), Log: log})
	}
}

func engineOptions(e client.Engine, lookup func(string) (string, bool)) docker.Options {
	if e.TLS != nil {
		// The same environment or docker context leads there again, with its
		// certificates.
		return docker.Options{LookupEnv: lookup}
	}
	return docker.Options{Host: e.Host, LookupEnv: lookup, APIVersion: e.APIVersion}
}
