package stream

import (
	"cmp"
	"context"
	"log/slog"
	"time"
)

// Options configure the streaming server. The zero value listens on a free port
// of 127.0.0.1.
type Options struct {
	Address           string // host:port to listen on
	CertFile, KeyFile string // TLS, when both are set
	OnDemand          bool   // listen when the first URL is asked for, not before

	// RecordDir is where processes that exec started are written down while
	// they run, so that EndRecorded can end what a killed shim left. "": nowhere.
	RecordDir string

	// AllowedHosts are names, beside this machine's own names and addresses, by
	// which clients and the kubelet's proxy may call the server.
	AllowedHosts []string

	// PodIPs gives the addresses of a sandbox that the engine does not know of.
	// It is asked only where the pod's network namespace cannot be entered.
	PodIPs func(ctx context.Context, sandboxID string) ([]string, error)

	IdleTimeout     time.Duration // of a connection without any traffic; 0: 4 hours
	CreationTimeout time.Duration // for the client to open its streams; 0: 30 seconds
	HeaderTimeout   time.Duration // for a client to say what it wants; 0: 10 seconds
	Log             *slog.Logger  // nil: nothing is logged
}

const (
	defaultAddress         = "127.0.0.1:0"
	defaultIdleTimeout     = 4 * time.Hour
	defaultCreationTimeout = 30 * time.Second
	defaultHeaderTimeout   = 10 * time.Second
)

func (o Options) withDefaults() Options {
	o.Address = cmp.Or(o.Address, defaultAddress)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, defaultIdleTimeout)
	o.CreationTimeout = cmp.Or(o.CreationTimeout, defaultCreationTimeout)
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, defaultHeaderTimeout)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
