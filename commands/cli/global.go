package cli

import (
	urfave "github.com/urfave/cli/v2"
)

// parts are the objects that the verbs of one command line share.
type parts struct {
	in        *Invocation
	printer   *Printer
	connector *Connector
	nodes     nodes
	profiles  profiles
	compat    string // value of --compat
}

func newParts(p *Process, compat bool) parts {
	in := NewInvocation(p, compat)
	return parts{in: in, printer: in.Printer, connector: NewConnector(in), nodes: nodes{parallel: 64}}
}

// globalFlags returns the flags that stand before the verb. In their long form they may also follow the verb.
func (p *parts) globalFlags() []urfave.Flag {
	c, out, t, n := p.connector, p.printer, p.connector.tracing, &p.nodes
	return []urfave.Flag{
		StringFlag(&c.config, "config", "Read settings from `FILE` (env CRI_CONFIG_FILE, default /etc/crictl.yaml)", "c"),
		ListFlag(&c.runtimeEndpoints, NotEmpty, "runtime-endpoint", "Connect to the runtime at `ENDPOINT`: unix:///path, tcp://host:port, ssh://host, docker:// (env CONTAINER_RUNTIME_ENDPOINT); repeat it for several nodes", "r"),
		Typed(&c.imageEndpoint, NotEmpty, "image-endpoint", "Connect to the image service at `ENDPOINT` (env IMAGE_SERVICE_ENDPOINT, default the runtime's)", "i"),
		DurationFlag(&c.timeout, "timeout", "Timeout of one operation: 5, 5s, 1m (default depends on the operation)", "t"),
		DurationFlag(&c.connectTimeout, "connect-timeout", "Timeout of connecting to the runtime (default 2s)"),
		BoolFlag(&out.debug, "debug", "Enable debug mode: print every request and its duration to stderr", "D"),
		IntFlag(&c.maxRetries, "max-retries", "Retry `N` times when the endpoint is missing or refuses connections; -1 retries forever (default 0)"),
		WordFlag(&p.compat, []string{"crictl"}, "compat", "Behave like `TOOL`, with its defaults, output and exit codes: crictl"),
		WordFlag(&out.errorFormat, []string{"text", errorJSON}, "error-format", "Print errors and warnings as `FORMAT`: text, json (one object per line)"),
		WordFlag(&out.color, []string{"auto", "always", "never"}, "color", "Colour headers and states `WHEN`: auto, always, never (default auto: on a terminal, unless NO_COLOR is set)"),
		Typed(&c.networkPlugin, parseNetworkPlugin, FlagNetworkPlugin, "Connect new pods of the embedded dockershim with `PLUGIN`: bridge, cni, kubenet (env CRISHIM_NETWORK_PLUGIN, default the engine's bridge)"),
		Typed(&c.shimConfig, NotEmpty, FlagShimConfig, "Read settings of the embedded dockershim from the YAML `FILE`, as serve --config-file does (env CRISHIM_SHIM_CONFIG)"),
		StringFlag(&p.profiles.cpuFile, "profile-cpu", "Write a CPU profile to `FILE`"),
		StringFlag(&p.profiles.memoryFile, "profile-mem", "Write a memory profile to `FILE`"),
		BoolFlag(&t.enabled, "enable-tracing", "Send a trace of the command to an OpenTelemetry collector"),
		StringFlag(&t.endpoint, "tracing-endpoint", "Send traces as OTLP over gRPC to the collector at `HOST:PORT`"),
		IntFlag(&t.rate, "tracing-sampling-rate-per-million", "Record `N` of a million traces; -1 records all"),
		StringsFlag(&n.hosts, flagHosts, "Connect to each of `HOSTS` over ssh, separated by commas: name, user@name:port, pattern of names in ~/.ssh/config, or an endpoint"),
		StringFlag(&n.hostsFile, flagHostsFile, "Read the hosts for --hosts from `FILE`, one per line"),
		IntFlag(&n.parallel, flagParallel, "Run on `N` endpoints at once"),
		DurationFlag(&c.nodeTimeout, flagNodeTimeout, "Timeout of each of several endpoints (default 1m, or 10m for commands that change or run something)"),
		BoolFlag(&n.yes, flagYes, "Make the change at several endpoints instead of only showing it"),
		BoolFlag(new(bool), "version", "Print crishim's version", "v"),
	}
}

// readGlobals checks the global flags, and starts tracing and profiling if they are requested.
func (p *parts) readGlobals(c *urfave.Context) error {
	if retries := p.connector.maxRetries; c.IsSet("max-retries") && retries < -1 {
		return Invalid("max-retries", retries, "must be 0 or more, or -1 for no end")
	}
	if p.compat != "" {
		p.in.setCompat(true)
	}
	if err := p.nodes.read(c, p.in, p.connector); err != nil {
		return err
	}
	if err := p.connector.tracing.start(c); err != nil {
		return err
	}
	return p.profiles.start()
}
