package checkup

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crishim/crishim/output"
)

const defaultConfDir = "/etc/cni/net.d"

func (c *checker) confDir() string {
	if c.config.CNI.ConfDir != "" {
		return c.config.CNI.ConfDir
	}
	return defaultConfDir
}

func (c *checker) binDirs() []string {
	cni := c.config.CNI
	switch {
	case c.loaded != nil && len(c.loaded.BinDirs) > 0:
		return c.loaded.BinDirs
	case len(cni.BinDirs) > 0:
		return cni.BinDirs
	case cni.BinDir != "":
		return []string{cni.BinDir}
	}
	return []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}
}

// cni checks the CNI configuration that the runtime reports, and that its plugins are installed. If the runtime reports
// no directory, the check is skipped: files in the default directory may belong to another tool.
func (c *checker) cni() []output.Finding {
	switch plugin := c.config.NetworkPlugin; {
	case !c.local:
		return []output.Finding{skipped("CNI", "the files of the runtime's machine cannot be seen from here")}
	case plugin == "bridge":
		return []output.Finding{skipped("CNI", "new pods get the engine's bridge")}
	case plugin == "kubenet":
		return []output.Finding{c.plugins("kubenet", "", []string{"bridge", "host-local", "portmap", "bandwidth"})}
	case c.loaded != nil:
		return c.loadedNetworks()
	case c.config.CNI.ConfDir == "":
		return []output.Finding{skipped("CNI", "the runtime does not say which configuration it uses")}
	}
	return []output.Finding{c.firstFile(c.confDir())}
}

// loadedNetworks checks the networks that containerd has loaded for pods. It skips the loopback network, which containerd
// adds itself.
func (c *checker) loadedNetworks() []output.Finding {
	var out []output.Finding
	for _, n := range c.loaded.Networks {
		if n.Interface == "lo" {
			continue
		}
		var types []string
		for _, pl := range n.Config.Plugins {
			types = addTypes(types, pl.Network.Type, pl.Network.IPAM.Type)
		}
		out = append(out, c.plugins(n.Config.Name, c.loaded.Dir, types))
	}
	if len(out) > 0 {
		return out
	}
	detail := "no configuration in " + c.loaded.Dir
	if c.loaded.Status != "" && c.loaded.Status != "OK" {
		detail = c.loaded.Status
	}
	return []output.Finding{failed("CNI", detail, "install a network plugin; it puts its configuration in "+c.loaded.Dir)}
}

// firstFile checks the first CNI configuration file of a directory in the order of names. Runtimes use this file.
func (c *checker) firstFile(dir string) output.Finding {
	files, err := configFiles(c.host.path(dir))
	if err != nil && !os.IsNotExist(err) {
		return warn("CNI", err.Error(), "try it with sudo")
	}
	if len(files) == 0 {
		return failed("CNI", "no configuration in "+dir, "install a network plugin; it puts its configuration there")
	}
	name := filepath.Base(files[0])
	types, err := pluginTypes(files[0])
	if err != nil {
		return failed("CNI", name+": "+err.Error(), "runtimes take the first file by name; repair or remove it")
	}
	return c.plugins(name, dir, types)
}

// plugins checks that the plugins of a CNI configuration are installed.
func (c *checker) plugins(name, dir string, types []string) output.Finding {
	if missing := c.missingPlugins(types); len(missing) > 0 {
		return failed("CNI", fmt.Sprintf("%s needs %s, not found in %s", name, strings.Join(missing, ", "), strings.Join(c.binDirs(), ", ")),
			"install the plugins (Debian: containernetworking-plugins, in /usr/lib/cni) or set the runtime's bin_dir")
	}
	return ok("CNI", fmt.Sprintf("%s: %s", filepath.Join(dir, name), strings.Join(types, ", ")))
}

// addTypes appends types without duplicates.
func addTypes(types []string, more ...string) []string {
	for _, t := range more {
		if t != "" && !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return types
}

// configFiles lists the CNI configuration files of a directory, sorted by name.
func configFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}

// pluginTypes lists the plugins in a CNI configuration file. The type of a plugin is the name of its executable.
func pluginTypes(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	type plugin struct {
		Type string `json:"type"`
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	var config struct {
		plugin
		Plugins []plugin `json:"plugins"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("no JSON: %w", err)
	}
	var types []string
	for _, pl := range append([]plugin{config.plugin}, config.Plugins...) {
		types = addTypes(types, pl.Type, pl.IPAM.Type)
	}
	if len(types) == 0 {
		return nil, fmt.Errorf("it names no plugin")
	}
	return types, nil
}

func (c *checker) missingPlugins(types []string) []string {
	var missing []string
	for _, t := range types {
		found := slices.ContainsFunc(c.binDirs(), func(dir string) bool {
			fi, err := os.Stat(c.host.path(filepath.Join(dir, filepath.Base(t))))
			return err == nil && fi.Mode()&0o111 != 0
		})
		if !found {
			missing = append(missing, t)
		}
	}
	return missing
}
