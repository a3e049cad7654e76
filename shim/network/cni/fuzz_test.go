package cni

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/shim/network"
)

// FuzzConfig checks that each configuration file is either rejected or has plugins, and that annotations and
// attachments in any form do no harm.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{
		`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp","capabilities":{"portMappings":true,"ipRanges":true}}]}`,
		`{"cniVersion":"0.3.1","name":"n","type":"bridge"}`, `{"name":"n","plugins":[null]}`, `{"name":"n","plugins":[{}]}`, `{"plugins":{}}`, `[]`, `null`, ``, `{"type":"0"}`, `{"cniVersion":7,"name":"../x","type":"../y"}`,
		`{"kind":"cniCacheV1","containerId":"pod","config":"e30=","ifName":"eth0","networkName":"n","cniArgs":[["K8S_POD_INFRA_CONTAINER_ID","pod"]],"result":{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24","interface":7}]}}`,
		`{"kind":"cniCacheV1","containerId":"pod","config":"eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoibiIsInBsdWdpbnMiOlt7InR5cGUiOiJwdHAifV19","ifName":"eth0","networkName":"n","cniArgs":[[]],"result":{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"},{"address":"fd00::2/64","interface":-1}]}}`,
		"10M", "-1", "1e99",
	} {
		f.Add(text)
	}
	conf, cache := f.TempDir(), f.TempDir()
	if err := os.Mkdir(filepath.Join(cache, "results"), 0o700); err != nil {
		f.Fatal(err)
	}
	p := New(Options{ConfDir: conf, CacheDir: cache, BinDirs: []string{f.TempDir()}}) // a directory without plugins
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range []string{filepath.Join(conf, "10.conflist"), filepath.Join(conf, "20.conf"), filepath.Join(cache, "results", "n-pod-eth0")} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		list, err := p.load()
		if err == nil && (list.Name == "" || len(list.Plugins) == 0) {
			t.Errorf("%q is a configuration for nothing", text)
		}
		if p.Usable() == nil || p.SetUp(t.Context(), network.Pod{ID: "pod", NetNS: "/proc/self/ns/net"}) == nil {
			t.Errorf("%q works without a plugin", text)
		}
		addresses, err := p.Addresses(t.Context(), network.Pod{ID: "pod"})
		for _, a := range addresses {
			if a == "" || a == "<nil>" {
				t.Errorf("%q gives the address %q, %v", text, a, err)
			}
		}
		attachments, err := p.cni.GetCachedAttachments("")
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range attachments {
			_ = ours(a)
			if list, _, err := attached(a, ""); err == nil && list == (*libcni.NetworkConfigList)(nil) {
				t.Errorf("%q is no configuration and no error", text)
			}
		}
		if rates, err := bandwidth(map[string]string{kube.AnnotationIngress: text}); err == nil && (rates["ingressRate"] < 1000 || rates["ingressRate"] > 1e15) {
			t.Errorf("%q is the rates %v", text, rates)
		}
	})
}
