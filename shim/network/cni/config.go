package cni

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
)

// load gives the configuration for new pods: the first in the order of file
// names that can be read. What is wrong with the others before it is only said
// when none is left.
func (p *Plugin) load() (*libcni.NetworkConfigList, error) {
	if p.options.Kubenet != nil {
		return p.options.Kubenet.list(p.cidr())
	}
	files, err := libcni.ConfFiles(p.options.ConfDir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, fmt.Errorf("CNI configurations in %s: %w", p.options.ConfDir, err)
	}
	var wrong []error
	for _, file := range files {
		list, err := read(file)
		if err == nil {
			return list, nil
		}
		wrong = append(wrong, fmt.Errorf("%s: %w", file, err))
	}
	return nil, fmt.Errorf("cni config uninitialized: %w",
		errors.Join(append(wrong, fmt.Errorf("no CNI configuration in %s: %w", p.options.ConfDir, errdefs.ErrFailedPrecondition))...))
}

func read(file string) (*libcni.NetworkConfigList, error) {
	list, err := readAny(file)
	if err == nil && len(list.Plugins) == 0 {
		return nil, errors.New("the configuration names no plugins")
	}
	if err == nil && list.Name == "" { // no plugin would take it
		return nil, errors.New("the configuration has no name")
	}
	return list, err
}

func readAny(file string) (*libcni.NetworkConfigList, error) {
	if filepath.Ext(file) == ".conflist" {
		return libcni.NetworkConfFromFile(file)
	}
	single, err := libcni.ConfFromFile(file) //nolint:staticcheck // single configurations are in use still
	if err != nil {
		return nil, err
	}
	if single.Network.Type == "" {
		return nil, errors.New("the configuration has no type")
	}
	return libcni.ConfListFromConf(single) //nolint:staticcheck // the same
}

// wants says whether a plugin of the list has asked for a capability.
func wants(list *libcni.NetworkConfigList, capability string) bool {
	for _, plugin := range list.Plugins {
		if plugin.Network.Capabilities[capability] {
			return true
		}
	}
	return false
}
