package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/shim"
	"github.com/crishim/crishim/shim/docker"
)

// Connector connects to the runtime of a command line. Each of several nodes has its own Connector.
type Connector struct {
	LookupEnv   func(string) (string, bool)
	Now         func() time.Time
	LongRunning bool // the verb runs long, so the embedded dockershim uses all settings of --shim-config

	process *Process
	in      *Invocation
	printer *Printer
	tracing *tracing
	images  bool           // the image endpoint is dialled first
	loaded  *client.Config // the config file, once read
	node    string         // name of the cluster's node or of one of several endpoints; "" for a single endpoint

	// Flags.
	config           string
	runtimeEndpoints []string
	imageEndpoint    string
	timeout          time.Duration // limit of an operation; 0 for the default of its kind
	connectTimeout   time.Duration // 0 for the default of client.Options
	maxRetries       int           // -1: no limit; noRetries: the config file decides
	networkPlugin    string        // of the embedded shim
	shimConfig       string
	nodeTimeout      time.Duration // 0 for the verb's default
}

const noRetries = math.MinInt // value of maxRetries if the flag is not given

func NewConnector(in *Invocation) *Connector {
	return &Connector{LookupEnv: in.LookupEnv, Now: in.Now, process: in.Process, in: in, printer: in.Printer, tracing: newTracing(in.Printer), maxRetries: noRetries}
}

// forNode returns a connector for one of several nodes. An endpoint of "" means the runtime of a cluster's node.
func (c *Connector) forNode(p *Printer, n namedEndpoint) *Connector {
	own := *c
	own.printer, own.node, own.imageEndpoint = p, n.name, n.endpoint
	if n.endpoint != "" {
		own.runtimeEndpoints = []string{n.endpoint}
	}
	return &own
}

// Connect resolves the endpoint and dials it.
func (c *Connector) Connect(ctx context.Context) (*client.Conn, error) {
	options, err := c.ClientOptions()
	if err != nil {
		return nil, err
	}
	if c.process.Cluster != nil {
		if err := c.openNode(ctx, &options); err != nil {
			return nil, err
		}
	}
	conn, err := client.Connect(ctx, options)
	if err != nil {
		return nil, err
	}
	c.noteChoice(conn)
	if flag := c.ShimFlag(); flag != "" && !conn.Embedded {
		return nil, Join(fmt.Errorf("--%s is for the embedded dockershim, and %s is used: take -r docker://", flag, conn.RuntimeEndpoint), conn.Close())
	}
	return conn, nil
}

// noteChoice warns about a choice of the runtime that the user may not expect.
func (c *Connector) noteChoice(conn *client.Conn) {
	if c.printer.all != nil {
		return
	}
	if conn.TakenAs != "" {
		c.printer.Note("crishim: %s is a Docker engine: taken as -r %s", conn.TakenAs, conn.RuntimeEndpoint)
	}
	// While serve restarts, its socket stays open but does not answer. If the restart takes longer than the probe waits,
	// another runtime is chosen.
	for _, one := range conn.Candidates {
		if one.Chosen || c.in.Compat {
			break
		}
		if one.State == client.StateHangs {
			c.printer.Note("crishim: warning: %s accepts connections but does not answer, so %s is used; -r chooses", one.Endpoint, conn.RuntimeEndpoint)
		}
	}
}

// ClientOptions returns the options for the connection. Flags win over the environment, and the environment over the
// config file.
func (c *Connector) ClientOptions() (client.Options, error) {
	config, err := c.Config()
	if err != nil {
		return client.Options{}, err
	}
	o := client.Options{
		RuntimeEndpoint: cmp.Or(c.runtimeEndpoint(), c.process.getenv("CONTAINER_RUNTIME_ENDPOINT"), config.RuntimeEndpoint),
		ImageEndpoint:   cmp.Or(c.imageEndpoint, c.process.getenv("IMAGE_SERVICE_ENDPOINT"), config.ImageEndpoint),
		Images:          c.images,
		ConnectTimeout:  cmp.Or(c.connectTimeout, c.process.ConnectTimeout),
		Timeout:         c.timeout,
		QueryTimeout:    max(config.Timeout, 0),
		MaxRetries:      config.MaxRetries,
		LookupEnv:       c.LookupEnv,
		Engines:         func(host string) []client.Engine { return docker.Endpoints(host, c.LookupEnv) },
		Now:             c.Now,
		Tracer:          c.Tracer(),
		Batch:           c.printer.all != nil,
	}
	embedded, err := c.ShimOptions()
	if err != nil {
		return client.Options{}, err
	}
	embedded.Tracer = o.Tracer
	if start := c.process.StartShim; start != nil {
		o.StartShim = func(ctx context.Context, e client.Engine) (client.Shim, error) { return start(ctx, e, embedded) }
	}
	if c.printer.debug {
		o.Debug = c.printer.Debugf
	}
	if c.maxRetries != noRetries {
		o.MaxRetries = c.maxRetries
	}
	return o, nil
}

// runtimeEndpoint returns the endpoint of a single -r, or "" if -r is missing or repeated.
func (c *Connector) runtimeEndpoint() string {
	if len(c.runtimeEndpoints) != 1 {
		return ""
	}
	return c.runtimeEndpoints[0]
}

// Config reads the config file once.
func (c *Connector) Config() (*client.Config, error) {
	if c.loaded != nil {
		return c.loaded, nil
	}
	config, err := client.LoadConfig(c.ConfigSource())
	if err != nil {
		return nil, inputError{err}
	}
	c.loaded = config
	c.printer.debug = c.printer.debug || config.Debug
	return config, nil
}

// ConfigSource returns the location of the config file.
func (c *Connector) ConfigSource() client.ConfigSource {
	return client.ConfigSource{
		Path: c.config, LookupEnv: c.LookupEnv, Executable: c.process.Executable, Default: c.process.ConfigFile,
	}
}

// Tracer returns the tracer provider, nil without --enable-tracing.
func (c *Connector) Tracer() trace.TracerProvider { return c.tracing.tracer() }

// ShimFlag returns the name of a flag on the command line that only applies to the embedded shim, or "".
func (c *Connector) ShimFlag() string {
	switch {
	case c.networkPlugin != "":
		return FlagNetworkPlugin
	case c.shimConfig != "":
		return FlagShimConfig
	}
	return ""
}

// ShimOptions returns the settings of an embedded shim: the settings in the file of --shim-config, and the network
// plugin. For the path of that file and for the plugin, the flag wins over the environment, and the environment over
// crishim's config file. Without all three, the plugin in the file of --shim-config is used, else bridge. The listener
// and the engine come from the endpoint. Without LongRunning, only the file's settings of network, pause image, cgroup
// driver and pull deadline are used.
func (c *Connector) ShimOptions() (o shim.Options, err error) {
	config, err := c.Config()
	if err != nil {
		return o, err
	}
	path := cmp.Or(c.shimConfig, c.process.getenv("CRISHIM_SHIM_CONFIG"), config.ShimConfig)
	if path != "" {
		all := NewServeOptions()
		if err := all.ReadServeConfig(func(string) bool { return false }, FlagShimConfig, path); err != nil {
			return o, err
		}
		if err := all.Complete(c.printer, c.LookupEnv); err != nil {
			return o, err
		}
		o = all.Shim
		if !c.LongRunning {
			o = shim.Options{Network: o.Network, PauseImage: o.PauseImage, PullProgressDeadline: o.PullProgressDeadline, CgroupDriver: o.CgroupDriver}
		}
	}
	// The default is bridge, so that a command does not depend on another tool's CNI configuration in /etc/cni/net.d.
	o.Network.Plugin = cmp.Or(c.networkPlugin, c.process.getenv("CRISHIM_NETWORK_PLUGIN"), config.NetworkPlugin, o.Network.Plugin, shim.PluginBridge)
	if _, err := parseNetworkPlugin(o.Network.Plugin); err != nil {
		return o, Usagef("invalid CRISHIM_NETWORK_PLUGIN %s: %v", Quote(o.Network.Plugin), err)
	}
	if o.Network.Plugin == shim.PluginKubenet && o.Network.PodCIDR == "" {
		return o, Usagef("network plugin kubenet needs the pod CIDR: give pod-cidr in the file of --%s", FlagShimConfig)
	}
	return o, nil
}

// openError is the error of a node that cannot be reached.
type openError struct {
	error
	c *Connector
}

func (e openError) Error() string { return e.c.aboutNode(e.error).Error() }

func (e openError) Unwrap() error { return e.error }

// openNode sets the relay to a node of a cluster.
func (c *Connector) openNode(ctx context.Context, o *client.Options) error {
	err := c.nameNode(ctx)
	if err != nil {
		return err
	}
	verb := c.in.line.Verb
	line := NodeLine{Verb: verb, OnNode: OnNodes(verb), Socket: c.runtimeEndpoint(), Deadline: c.deadline()}
	o.RuntimeEndpoint = "node " + c.node
	if o.Relay, err = c.process.Cluster.Open(ctx, c.node, line); err != nil {
		return openError{err, c}
	}
	return nil
}

// nameNode looks up the name of the node if the command line is for a single node.
func (c *Connector) nameNode(ctx context.Context) error {
	if c.node != "" {
		return nil
	}
	names, err := c.process.Cluster.Nodes(ctx)
	if err == nil {
		c.node = names[0]
	}
	return err
}

// aboutNode adds the node to an error, unless the list of failures already names it.
func (c *Connector) aboutNode(err error) error {
	if c.printer.all != nil {
		return err
	}
	return About("node "+c.node, err)
}

// Deadlines of a node.
const (
	readDeadline = time.Minute
	longDeadline = 10 * time.Minute
)

// deadline returns the time limit of a node; 0 means no limit.
func (c *Connector) deadline() time.Duration {
	switch cluster := c.process.Cluster; {
	case cluster != nil && cluster.One:
		return cluster.Timeout
	case c.nodeTimeout == 0 && OnNodes(c.in.line.Verb).Rights != kube.RightsRead:
		return longDeadline
	}
	return cmp.Or(c.nodeTimeout, readDeadline)
}

// lateError is the error of a node that does not answer in time.
type lateError struct {
	after time.Duration
	why   error // the reason, if it is known
}

func (e *lateError) Error() string {
	if e.why != nil {
		return fmt.Sprintf("no answer within %s: %v", e.after, e.why)
	}
	return fmt.Sprintf("no answer within %s", e.after)
}

// within runs do with the time limit of a node.
func (c *Connector) within(ctx context.Context, do func(context.Context) error) error {
	limit := c.deadline()
	// With a context deadline, a call could fail just before the limit and return its own error instead of a lateError.
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	if limit > 0 {
		defer time.AfterFunc(limit, cancel).Stop()
	}
	err := do(limited)
	if err == nil || limited.Err() == nil || ctx.Err() != nil {
		return err
	}
	late := &lateError{after: limit}
	if opening := (openError{}); errors.As(err, &opening) && !errors.Is(err, context.Canceled) {
		late.why = opening.error
	}
	return late
}

// withinOne is within for a command line with a single node. It adds the node's name to a timeout.
func (c *Connector) withinOne(ctx context.Context, do func(context.Context) error) error {
	err := c.within(ctx, do)
	if late := (*lateError)(nil); errors.As(err, &late) {
		return c.aboutNode(err)
	}
	return err
}
