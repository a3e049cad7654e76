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
		StringFlag(&c.config, "config", "read settings from `FILE` (env CRI_CONFIG_FILE, default /etc/crictl.yaml)", "c"),
		ListFlag(&c.runtimeEndpoints, NotEmpty, "runtime-endpoint", "talk to the runtime at `ENDPOINT`: unix:///path, tcp://host:port, ssh://host, docker:// (env CONTAINER_RUNTIME_ENDPOINT); may be repeated", "r"),
		Typed(&c.imageEndpoint, NotEmpty, "image-endpoint", "talk to the image service at `ENDPOINT` (env IMAGE_SERVICE_ENDPOINT, default the runtime's)", "i"),
		DurationFlag(&c.timeout, "timeout", "timeout of one operation: 5, 5s, 1m (default by operation)", "t"),
		DurationFlag(&c.connectTimeout, "connect-timeout", "timeout of connecting (default 2s)"),
		BoolFlag(&out.debug, "debug", "print on stderr what is done and how long it takes", "D"),
		IntFlag(&c.maxRetries, "max-retries", "retry `N` times, or without end for -1, when the endpoint is missing or refuses connections (default none)"),
		WordFlag(&p.compat, []string{"crictl"}, "compat", "keep the defaults, output and exit codes of `TOOL` (crictl)"),
		WordFlag(&out.errorFormat, []string{"text", errorJSON}, "error-format", "print errors and warnings as `FORMAT`: text, json (one object a line)"),
		WordFlag(&out.color, []string{"auto", "always", "never"}, "color", "colour headers and states `WHEN`: auto, always, never (default auto: on a terminal, unless NO_COLOR is set)"),
		Typed(&c.networkPlugin, parseNetworkPlugin, FlagNetworkPlugin, "connect new pods of the embedded dockershim by `PLUGIN`: bridge, cni, kubenet (env CRISHIM_NETWORK_PLUGIN, default the engine's bridge)"),
		Typed(&c.shimConfig, NotEmpty, FlagShimConfig, "take the embedded dockershim's settings from the YAML `FILE`, which has the flags of serve (env CRISHIM_SHIM_CONFIG)"),
		StringFlag(&p.profiles.cpuFile, "profile-cpu", "write a CPU profile to `FILE`"),
		StringFlag(&p.profiles.memoryFile, "profile-mem", "write a memory profile to `FILE`"),
		BoolFlag(&t.enabled, "enable-tracing", "send a trace of the command to an OpenTelemetry collector"),
		StringFlag(&t.endpoint, "tracing-endpoint", "`HOST:PORT` of the collector, which takes OTLP over gRPC"),
		IntFlag(&t.rate, "tracing-sampling-rate-per-million", "record `N` of a million traces; -1 is all"),
		StringsFlag(&n.hosts, flagHosts, "as -r ssh://HOST for each of these `HOSTS`, separated by commas: names, user@name:port, patterns of names in ~/.ssh/config, endpoints"),
		StringFlag(&n.hostsFile, flagHostsFile, "as --hosts with the lines of `FILE`"),
		IntFlag(&n.parallel, flagParallel, "ask `N` endpoints at once"),
		DurationFlag(&c.nodeTimeout, flagNodeTimeout, "timeout of each of several endpoints (default 1m, or 10m for what changes or runs something)"),
		BoolFlag(&n.yes, flagYes, "make the change at several endpoints, not only show it"),
		BoolFlag(new(bool), "version", "print crishim's own version", "v"),
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
