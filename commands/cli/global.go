package cli

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/pprof"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
)

// globals are the options before the verb, or, in their long form, after it.
type globals struct {
	config           string
	runtimeEndpoints []string
	imageEndpoint    string
	timeout          time.Duration // of an operation; 0 for the default of its kind
	connectTimeout   time.Duration // 0 for the client's own
	maxRetries       int           // -1 without end, noRetries as in the config file
	debug            bool
	cpuProfile       string
	memProfile       string
	networkPlugin    string // of the embedded shim
	shimConfig       string
	compat           string
	errorFormat      string
	color            string
	version          bool
	tracing          bool
	tracingEndpoint  string
	samplingRate     int // of a million traces; -1 for all
	hosts            []string
	hostsFile        string
	parallel         int
	nodeTimeout      time.Duration // 0 for the verb's default
	yes              bool
}

// runtimeEndpoint returns the endpoint of a single -r; "" if there is none, or several.
func (g *globals) runtimeEndpoint() string {
	if len(g.runtimeEndpoints) != 1 {
		return ""
	}
	return g.runtimeEndpoints[0]
}

const (
	errorJSON = "json"      // of --error-format
	noRetries = math.MinInt // maxRetries without the flag
)

// ShimFlag returns the flag about the embedded shim that was given, or "".
func (env *Env) ShimFlag() string {
	switch {
	case env.global.networkPlugin != "":
		return FlagNetworkPlugin
	case env.global.shimConfig != "":
		return FlagShimConfig
	}
	return ""
}

func (env *Env) globalFlags() []urfave.Flag {
	g := &env.global
	return []urfave.Flag{
		StringFlag(&g.config, "config", "read settings from `FILE` (env CRI_CONFIG_FILE, default /etc/crictl.yaml)", "c"),
		ListFlag(&g.runtimeEndpoints, NotEmpty, "runtime-endpoint", "talk to the runtime at `ENDPOINT`: unix:///path, tcp://host:port, ssh://host, docker:// (env CONTAINER_RUNTIME_ENDPOINT); may be repeated", "r"),
		Typed(&g.imageEndpoint, NotEmpty, "image-endpoint", "talk to the image service at `ENDPOINT` (env IMAGE_SERVICE_ENDPOINT, default the runtime's)", "i"),
		DurationFlag(&g.timeout, "timeout", "timeout of one operation: 5, 5s, 1m (default by operation)", "t"),
		DurationFlag(&g.connectTimeout, "connect-timeout", "timeout of connecting (default 2s)"),
		BoolFlag(&g.debug, "debug", "print on stderr what is done and how long it takes", "D"),
		IntFlag(&g.maxRetries, "max-retries", "retry `N` times, or without end for -1, when the endpoint is missing or refuses connections (default none)"),
		WordFlag(&g.compat, []string{"crictl"}, "compat", "keep the defaults, output and exit codes of `TOOL` (crictl)"),
		WordFlag(&g.errorFormat, []string{"text", errorJSON}, "error-format", "print errors and warnings as `FORMAT`: text, json (one object a line)"),
		WordFlag(&g.color, []string{"auto", "always", "never"}, "color", "colour headers and states `WHEN`: auto, always, never (default auto: on a terminal, unless NO_COLOR is set)"),
		Typed(&g.networkPlugin, parseNetworkPlugin, FlagNetworkPlugin, "connect new pods of the embedded dockershim by `PLUGIN`: bridge, cni, kubenet (env CRISHIM_NETWORK_PLUGIN, default the engine's bridge)"),
		Typed(&g.shimConfig, NotEmpty, FlagShimConfig, "take the embedded dockershim's settings from the YAML `FILE`, which has the flags of serve (env CRISHIM_SHIM_CONFIG)"),
		StringFlag(&g.cpuProfile, "profile-cpu", "write a CPU profile to `FILE`"),
		StringFlag(&g.memProfile, "profile-mem", "write a memory profile to `FILE`"),
		BoolFlag(&g.tracing, "enable-tracing", "send a trace of the command to an OpenTelemetry collector"),
		StringFlag(&g.tracingEndpoint, "tracing-endpoint", "`HOST:PORT` of the collector, which takes OTLP over gRPC"),
		IntFlag(&g.samplingRate, "tracing-sampling-rate-per-million", "record `N` of a million traces; -1 is all"),
		StringsFlag(&g.hosts, flagHosts, "as -r ssh://HOST for each of these `HOSTS`, separated by commas: names, user@name:port, patterns of names in ~/.ssh/config, endpoints"),
		StringFlag(&g.hostsFile, flagHostsFile, "as --hosts with those that `FILE` lists"),
		IntFlag(&g.parallel, flagParallel, "ask `N` endpoints at once"),
		DurationFlag(&g.nodeTimeout, flagNodeTimeout, "timeout of each of several endpoints (default 1m, or 10m for what changes or runs something)"),
		BoolFlag(&g.yes, flagYes, "change what is at several endpoints without asking"),
		BoolFlag(&g.version, "version", "print crishim's own version", "v"),
	}
}

func NotEmpty(text string) (string, error) {
	if text == "" {
		return "", errors.New("must not be empty")
	}
	return text, nil
}

func (env *Env) readGlobals(c *urfave.Context) error {
	if c.IsSet("max-retries") && env.global.maxRetries < -1 {
		return Invalid("max-retries", env.global.maxRetries, "must be 0 or more, or -1 for no end")
	}
	env.Compat = env.Compat || env.global.compat != ""
	if err := env.readNodes(c); err != nil {
		return err
	}
	if err := env.tracing.start(c, env); err != nil {
		return err
	}
	return env.profiles.start(env.global)
}

// profiles measures a command line for --profile-cpu and --profile-mem.
type profiles struct {
	cpu    *OutputFile
	memory string
}

func (p *profiles) start(g globals) (err error) {
	p.memory = g.memProfile
	if g.cpuProfile == "" {
		return nil
	}
	if p.cpu, err = CreateOutput(g.cpuProfile); err == nil {
		err = pprof.StartCPUProfile(p.cpu)
	}
	if err != nil {
		return fmt.Errorf("--profile-cpu: %w", err)
	}
	return nil
}

// stop writes the profiles. It is called once, also if start failed.
func (p *profiles) stop() (err error) {
	if p.cpu != nil {
		pprof.StopCPUProfile()
		err = p.cpu.Commit()
	}
	if p.memory == "" {
		return err
	}
	file, createErr := CreateOutput(p.memory)
	if createErr != nil {
		return Join(err, fmt.Errorf("--profile-mem: %w", createErr))
	}
	defer file.Close()
	runtime.GC() // else the profile is of the last collection
	return Join(err, pprof.WriteHeapProfile(file), file.Commit())
}

// Config reads the config file once.
func (env *Env) Config() (*client.Config, error) {
	if env.loaded != nil {
		return env.loaded, nil
	}
	config, err := client.LoadConfig(env.ConfigSource())
	if err != nil {
		return nil, inputError{err}
	}
	env.loaded = config
	env.global.debug = env.global.debug || config.Debug
	return config, nil
}

func (env *Env) ConfigSource() client.ConfigSource {
	return client.ConfigSource{
		Path: env.global.config, LookupEnv: env.LookupEnv, Executable: env.Executable, Default: env.ConfigFile,
	}
}
