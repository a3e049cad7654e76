package commands

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/shim"
)

const flagNetworkPlugin = "network-plugin"

func networkPlugins() map[string]string {
	return map[string]string{"cni": shim.PluginCNI, "kubenet": shim.PluginKubenet, "bridge": shim.PluginBridge}
}

// networkFlags are the flags of serve about pod networks, under the names that
// dockershim and cri-dockerd gave them.
func networkFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: flagNetworkPlugin, Usage: "connect pods by `PLUGIN`: cni, kubenet, bridge (default cni where it is configured, else the engine's bridge)"},
		&cli.StringFlag{Name: "cni-conf-dir", Usage: "`DIRECTORY` of CNI configurations (default /etc/cni/net.d)"},
		&cli.StringFlag{Name: "cni-bin-dir", Usage: "`DIRECTORIES` of CNI plugins, separated by commas (default where distributions put them)"},
		&cli.StringFlag{Name: "cni-cache-dir", Usage: "`DIRECTORY` of CNI results (default /var/lib/cni/cache)"},
		&cli.StringFlag{Name: "pod-cidr", Usage: "give pods addresses from `CIDR`, two separated by a comma for dual stack; a kubelet may tell it later"},
		&cli.IntFlag{Name: "network-plugin-mtu", Usage: "`BYTES` of kubenet's largest packet (default the kernel's)"},
		&cli.StringFlag{Name: "hairpin-mode", Usage: "let a pod reach itself through its service by `MODE`: none, hairpin-veth, promiscuous-bridge (default none, kubenet's promiscuous-bridge)"},
		&cli.StringFlag{Name: "non-masquerade-cidr", Usage: "let kubenet's pods keep their addresses towards `CIDR`, two separated by a comma for dual stack (default the pod CIDR)"},
	}
}

func readNetwork(c *cli.Context) (o shim.NetworkOptions, err error) {
	if o.Plugin, _, err = oneOf(c, flagNetworkPlugin, networkPlugins()); err != nil {
		return o, err
	}
	modes := map[string]string{"none": "none", "hairpin-veth": "hairpin-veth", "promiscuous-bridge": "promiscuous-bridge"}
	if o.Hairpin, _, err = oneOf(c, "hairpin-mode", modes); err != nil {
		return o, err
	}
	o.ConfDir, o.CacheDir, o.MTU = c.String("cni-conf-dir"), c.String("cni-cache-dir"), c.Int("network-plugin-mtu")
	if o.MTU < 0 {
		return o, usagef("--network-plugin-mtu %d: want a number that is not negative", o.MTU)
	}
	if dirs := c.String("cni-bin-dir"); dirs != "" {
		o.BinDirs = strings.Split(dirs, ",")
	}
	if o.PodCIDR, err = readCIDRs(c, "pod-cidr"); err != nil {
		return o, err
	}
	o.NonMasqueradeCIDR, err = readCIDRs(c, "non-masquerade-cidr")
	switch {
	case err != nil || o.NonMasqueradeCIDR == "":
	case o.Plugin != shim.PluginKubenet:
		return o, usagef("--non-masquerade-cidr is for --network-plugin kubenet: a CNI configuration says itself what is masqueraded")
	case strings.Count(o.NonMasqueradeCIDR, ",") > 1 || strings.Contains(o.NonMasqueradeCIDR, ",") && onlyOneFamily(o.NonMasqueradeCIDR):
		return o, usagef("--non-masquerade-cidr %s: want one range of IPv4 and one of IPv6 at most", o.NonMasqueradeCIDR)
	}
	return o, err
}

// onlyOneFamily reports whether two ranges are both of IPv4, or both of IPv6.
func onlyOneFamily(cidrs string) bool {
	first, second, _ := strings.Cut(cidrs, ",")
	return strings.Contains(first, ":") == strings.Contains(second, ":")
}

// readCIDRs reads a flag with address ranges separated by commas.
func readCIDRs(c *cli.Context, name string) (string, error) {
	cidrs, err := shim.PodCIDR(c.String(name))
	if err != nil {
		return "", usagef("--%s %v", name, err)
	}
	return cidrs, nil
}
