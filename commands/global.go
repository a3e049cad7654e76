package commands

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"
)

// globals are the options that stand before the verb, or, in their long form,
// behind it.
type globals struct {
	config          string
	runtimeEndpoint string
	imageEndpoint   string
	timeout         time.Duration // per operation; 0: by its kind
	connectTimeout  time.Duration // 0: the client's own
	maxRetries      int
	maxRetriesGiven bool
	debug           bool
	cpuProfile      string
	memProfile      string
	networkPlugin   string // of the embedded shim
	shimConfig      string
}

// shimFlag is a flag about the embedded shim that was given, "" where none was.
func (g globals) shimFlag() string {
	switch {
	case g.networkPlugin != "":
		return flagNetworkPlugin
	case g.shimConfig != "":
		return flagShimConfig
	}
	return ""
}

func globalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "config", Aliases: []string{"c"}, Usage: "read settings from `FILE` (env CRI_CONFIG_FILE, default /etc/crictl.yaml)"},
		&cli.StringFlag{Name: "runtime-endpoint", Aliases: []string{"r"}, Usage: "talk to the runtime at `ENDPOINT`: unix:///path, tcp://host:port, docker:// (env CONTAINER_RUNTIME_ENDPOINT)"},
		&cli.StringFlag{Name: "image-endpoint", Aliases: []string{"i"}, Usage: "talk to the image service at `ENDPOINT` (env IMAGE_SERVICE_ENDPOINT, default the runtime's)"},
		durationFlag("timeout", "t", "give one operation this long: 5, 5s, 1m (default by operation)"),
		durationFlag("connect-timeout", "", "give connecting this long (default 2s)"),
		&cli.BoolFlag{Name: "debug", Aliases: []string{"D"}, Usage: "say on stderr what is done and how long it takes"},
		&cli.IntFlag{Name: "max-retries", DefaultText: "not at all", Usage: "try an endpoint that is absent or refuses `N` times more"},
		&cli.StringFlag{Name: "compat", Usage: "keep the defaults, output and exit codes of `TOOL` (crictl)"},
		&cli.StringFlag{Name: flagNetworkPlugin, Usage: "connect new pods of the built-in dockershim by `PLUGIN`: bridge, cni, kubenet (env CRISHIM_NETWORK_PLUGIN, default the engine's bridge)"},
		&cli.StringFlag{Name: flagShimConfig, Usage: "take the built-in dockershim's settings from the YAML `FILE`, which has the flags of serve (env CRISHIM_SHIM_CONFIG)"},
		&cli.StringFlag{Name: "profile-cpu", Usage: "write a CPU profile to `FILE`"},
		&cli.StringFlag{Name: "profile-mem", Usage: "write a memory profile to `FILE`"},
		&cli.BoolFlag{Name: "enable-tracing", Hidden: true},
		&cli.StringFlag{Name: "tracing-endpoint", Hidden: true},
		&cli.StringFlag{Name: "tracing-sampling-rate-per-million", Hidden: true},
		&cli.BoolFlag{Name: "version", Aliases: []string{"v"}, Usage: "print crishim's own version"},
	}
}

// readGlobals is the App's Before: flags into env.global.
func readGlobals(env *Env) cli.BeforeFunc {
	return func(c *cli.Context) error {
		for _, name := range []string{"enable-tracing", "tracing-endpoint", "tracing-sampling-rate-per-million"} {
			if c.IsSet(name) {
				return usagef("--%s: tracing is not built in", name)
			}
		}
		if tool := c.String("compat"); tool != "" {
			if tool != "crictl" {
				return usagef("--compat %q: only crictl is known", tool)
			}
			env.compat = true
		}
		env.global = globals{
			config:          c.String("config"),
			runtimeEndpoint: c.String("runtime-endpoint"),
			imageEndpoint:   c.String("image-endpoint"),
			timeout:         durationOf(c, "timeout"),
			connectTimeout:  durationOf(c, "connect-timeout"),
			maxRetries:      c.Int("max-retries"),
			maxRetriesGiven: c.IsSet("max-retries"),
			debug:           c.Bool("debug"),
			cpuProfile:      c.String("profile-cpu"),
			memProfile:      c.String("profile-mem"),
			networkPlugin:   c.String(flagNetworkPlugin),
			shimConfig:      c.String(flagShimConfig),
		}
		for name, value := range map[string]string{
			"runtime-endpoint": env.global.runtimeEndpoint, "image-endpoint": env.global.imageEndpoint,
			flagNetworkPlugin: env.global.networkPlugin, flagShimConfig: env.global.shimConfig,
		} {
			if c.IsSet(name) && value == "" {
				return usagef("--%s is empty", name)
			}
		}
		return env.profiles.start(env.global)
	}
}

// duration is a flag value that takes 5 for five seconds as well as 5s.
type duration time.Duration

// Set parses the flag's text.
func (d *duration) Set(text string) error {
	value, err := parseDuration(text)
	if err != nil {
		return err
	}
	*d = duration(value)
	return nil
}

func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func parseDuration(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if math.IsNaN(seconds) || math.Abs(seconds) > float64(math.MaxInt64/int64(time.Second)) {
			return 0, fmt.Errorf("%q is out of range", text)
		}
		return time.Duration(seconds * float64(time.Second)), nil
	}
	value, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("want a number of seconds or a duration such as 5s or 1m30s")
	}
	return value, nil
}

func durationFlag(name, short, usage string) *cli.GenericFlag {
	flag := &cli.GenericFlag{Name: name, Usage: usage, Value: new(duration)}
	if short != "" {
		flag.Aliases = []string{short}
	}
	return flag
}

func durationOf(c *cli.Context, name string) time.Duration {
	if value, ok := c.Generic(name).(*duration); ok && value != nil {
		return time.Duration(*value)
	}
	return 0
}
