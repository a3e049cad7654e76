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

func (p *patient) confDir() string {
	if p.config.CNI.ConfDir != "" {
		return p.config.CNI.ConfDir
	}
	return defaultConfDir
}

func (p *patient) binDirs() []string {
	c := p.config.CNI
	switch {
	case len(c.BinDirs) > 0:
		return c.BinDirs
	case c.BinDir != "":
		return []string{c.BinDir}
	}
	return []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}
}

// cni checks that the configuration which runtimes take, the first by name,
// can be read and that its plugins are installed. The shim without CNI uses
// the engine's bridge and has its say in NetworkReady.
func (p *patient) cni() []output.Finding {
	if !p.local {
		return []output.Finding{skipped("CNI", "the runtime is on another machine")}
	}
	dir := p.confDir()
	files, err := configFiles(p.host.path(dir))
	if err != nil && !os.IsNotExist(err) {
		return []output.Finding{warn("CNI", err.Error(), "try it with sudo")}
	}
	if len(files) == 0 {
		if p.networkReady {
			return []output.Finding{skipped("CNI", "no configuration in "+dir+", and the runtime does without")}
		}
		return []output.Finding{failed("CNI", "no configuration in "+dir, "install a network plugin; it puts its configuration there")}
	}
	name := filepath.Base(files[0])
	types, err := pluginTypes(files[0])
	if err != nil {
		return []output.Finding{failed("CNI", name+": "+err.Error(), "runtimes take the first file by name; repair or remove it")}
	}
	if missing := p.missingPlugins(types); len(missing) > 0 {
		return []output.Finding{failed("CNI", fmt.Sprintf("%s needs %s, not found in %s", name, strings.Join(missing, ", "), strings.Join(p.binDirs(), ", ")),
			"install the plugins (Debian: containernetworking-plugins, in /usr/lib/cni) or set the runtime's bin_dir")}
	}
	return []output.Finding{ok("CNI", fmt.Sprintf("%s: %s", filepath.Join(dir, name), strings.Join(types, ", ")))}
}

// configFiles are a folder's CNI configurations in the order of their names.
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

// pluginTypes are the programs that a configuration calls.
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
		for _, t := range []string{pl.Type, pl.IPAM.Type} {
			if t != "" && !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
	}
	if len(types) == 0 {
		return nil, fmt.Errorf("it names no plugin")
	}
	return types, nil
}

func (p *patient) missingPlugins(types []string) []string {
	var missing []string
	for _, t := range types {
		found := slices.ContainsFunc(p.binDirs(), func(dir string) bool {
			fi, err := os.Stat(p.host.path(filepath.Join(dir, filepath.Base(t))))
			return err == nil && fi.Mode()&0o111 != 0
		})
		if !found {
			missing = append(missing, t)
		}
	}
	return missing
}
