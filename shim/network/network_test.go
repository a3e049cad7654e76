package network

import (
	"context"
	"testing"
)

type named struct {
	Bridge
	name string
}

func (n named) Name() string { return n.name }

func TestPluginOfAnExistingSandbox(t *testing.T) {
	t.Parallel()
	onBridge := Plugins{Default: Bridge{}, Others: []Plugin{named{name: NameCNI}}}
	onCNI := Plugins{Default: named{name: NameCNI}}
	for name, c := range map[string]struct {
		plugins            Plugins
		label, mode, wants string
	}{
		"its label":                         {onBridge, "cni", "none", NameCNI},
		"its label, though not the default": {onCNI, "bridge", "default", NameBridge},
		"the host's network":                {onCNI, "host", "host", nameHost},
		"another shim's on the bridge":      {onCNI, "", "default", NameBridge},
		"another shim's on a network":       {onCNI, "", "mynet", NameBridge},
		"another shim's through CNI":        {onBridge, "", "none", NameCNI},
		"another shim's on the host":        {onBridge, "", "host", nameHost},
		"a plugin that is no longer there":  {Plugins{Default: Bridge{}}, "cni", "none", NameBridge},
	} {
		if got := c.plugins.ForExisting(c.label, c.mode).Name(); got != c.wants {
			t.Errorf("%s: got %s, want %s", name, got, c.wants)
		}
	}
}

func TestPluginOfANewSandbox(t *testing.T) {
	t.Parallel()
	p := Plugins{Default: named{name: NameCNI}}
	if got := p.ForNew(t.Context(), true).Name(); got != nameHost {
		t.Errorf("on the host's network: got %s", got)
	}
	if got := p.ForNew(t.Context(), false).Name(); got != NameCNI {
		t.Errorf("otherwise: got %s", got)
	}
	p.Choose = func(context.Context) Plugin { return Bridge{} }
	if got := p.ForNew(t.Context(), false).Name(); got != NameBridge {
		t.Errorf("by choice: got %s", got)
	}
}

func TestEnginePlugins(t *testing.T) {
	t.Parallel()
	for _, p := range []Plugin{Bridge{}, Host{}} {
		pod := Pod{EngineIPs: []string{"172.17.0.2"}}
		addresses, err := p.Addresses(t.Context(), pod)
		if err != nil || (len(addresses) == 1) != p.Publishes() {
			t.Errorf("%s: got %v, %v", p.Name(), addresses, err)
		}
		for _, err := range []error{p.SetUp(t.Context(), pod), p.TearDown(t.Context(), pod), p.Status(t.Context())} {
			if err != nil {
				t.Errorf("%s: %v", p.Name(), err)
			}
		}
	}
}
