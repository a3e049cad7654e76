package commands

import (
	"cmp"
	"flag"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/shim"
)

const flagShimConfig = "shim-config"

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
	named := cmp.Or(env.global.networkPlugin, env.getenv("CRISHIM_NETWORK_PLUGIN"), config.NetworkPlugin)
	plugin, known := networkPlugins()[named]
	switch {
	case known:
		o.Network.Plugin = plugin
	case env.global.networkPlugin != "":
		return o, usagef("--%s %s: want bridge, cni, kubenet", flagNetworkPlugin, quote(named))
	case named != "":
		return o, usagef("CRISHIM_NETWORK_PLUGIN %s: want bridge, cni, kubenet", quote(named))
	}
	// What some other tool has left in /etc/cni/net.d must not change what a command does.
	o.Network.Plugin = cmp.Or(o.Network.Plugin, shim.PluginBridge)
	if o.Network.Plugin == shim.PluginKubenet && o.Network.PodCIDR == "" {
		return o, usagef("network plugin kubenet needs the pod CIDR: give pod-cidr in the file of --%s", flagShimConfig)
	}
	return o, nil
}

// readShimConfig reads serve's flags from a file alone.
func readShimConfig(env *Env, path string) (serveOptions, error) {
	set := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags := serveFlags()
	for _, f := range flags {
		if err := f.Apply(set); err != nil {
			return serveOptions{}, fmt.Errorf("flags of serve: %w", err)
		}
	}
	c := cli.NewContext(nil, set, nil)
	c.Command = &cli.Command{Flags: flags}
	if err := readServeConfig(c, flagShimConfig, path); err != nil {
		return serveOptions{}, err
	}
	return serveSettings(env, c)
}
