package commands

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/crifile"
	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/shim"
)

// Flags that several places name.
const (
	flagServeConfig   = "config-file"
	flagShimConfig    = "shim-config"
	flagNetworkPlugin = "network-plugin"
)

// readServeConfig takes flags from a file that a flag, or what stands for it, has
// named: a YAML map from the names of serve's flags, also their other names, to their
// values. What the command line says wins.
func readServeConfig(c *cli.Context, from, path string) error {
	if path == "" {
		return nil
	}
	content, err := bounded.ReadFile(path, bounded.Config)
	if err != nil {
		return inputError{fmt.Errorf("--%s: %w", from, err)}
	}
	known, given, set := map[string]string{}, map[string]bool{}, map[string]bool{}
	var names []string
	for _, f := range c.Command.Flags {
		own := f.Names()
		if own[0] == flagServeConfig {
			continue
		}
		given[own[0]] = c.IsSet(own[0])
		names = append(names, own...)
		for _, name := range own {
			known[name] = own[0]
		}
	}
	err = crifile.Settings(path, content, names, func(name, value string) error {
		flag := known[name]
		if set[flag] {
			return errors.New("this flag is set twice")
		}
		set[flag] = true
		if given[flag] {
			return nil
		}
		return c.Set(flag, value)
	})
	if err != nil {
		return inputError{fmt.Errorf("--%s: %w", from, err)}
	}
	return nil
}

// shimOptions are the settings of an embedded shim: those of a file in which the flags
// of serve are, and the network plugin, each named by a flag, the environment or the
// config file. A shim that stays takes all of them but where to listen and on which
// engine, which the endpoint says. For a single command there are those about pods and
// images.
func (env *Env) shimOptions(config *client.Config, stays bool) (o shim.Options, err error) {
	path := cmp.Or(env.global.shimConfig, env.getenv("CRISHIM_SHIM_CONFIG"), config.ShimConfig)
	if path != "" {
		all, err := readShimConfig(env, path)
		if err != nil {
			return o, err
		}
		o = all.shim
		if !stays {
			o = shim.Options{Network: o.Network, PauseImage: o.PauseImage, PullProgressDeadline: o.PullProgressDeadline, CgroupDriver: o.CgroupDriver}
		}
	}
	// What some other tool has left in /etc/cni/net.d must not change what a command does.
	o.Network.Plugin = cmp.Or(env.global.networkPlugin, env.getenv("CRISHIM_NETWORK_PLUGIN"), config.NetworkPlugin, o.Network.Plugin, shim.PluginBridge)
	if _, err := parseNetworkPlugin(o.Network.Plugin); err != nil {
		return o, usagef("invalid CRISHIM_NETWORK_PLUGIN %s: %v", quote(o.Network.Plugin), err)
	}
	if o.Network.Plugin == shim.PluginKubenet && o.Network.PodCIDR == "" {
		return o, usagef("network plugin kubenet needs the pod CIDR: give pod-cidr in the file of --%s", flagShimConfig)
	}
	return o, nil
}

func networkPlugins() []string {
	return []string{shim.PluginBridge, shim.PluginCNI, shim.PluginKubenet}
}

func parseNetworkPlugin(text string) (string, error) {
	if !slices.Contains(networkPlugins(), text) {
		return "", mustBe(networkPlugins()...)
	}
	return text, nil
}

// readShimConfig reads serve's flags from a file alone.
func readShimConfig(env *Env, path string) (*serveOptions, error) {
	o := newServeOptions()
	set := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags := o.flags()
	for _, f := range flags {
		if err := f.Apply(set); err != nil {
			return nil, fmt.Errorf("flags of serve: %w", err)
		}
	}
	c := cli.NewContext(nil, set, nil)
	c.Command = &cli.Command{Flags: flags}
	if err := readServeConfig(c, flagShimConfig, path); err != nil {
		return nil, err
	}
	return o, o.complete(env)
}
