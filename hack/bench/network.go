package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pluginDir is where distributions put the CNI plugins.
const pluginDir = "/usr/lib/cni"

// fastNetwork makes pods through CNI on two serves, one of which lets the pause
// process make the network namespace. Without the plugins there are no such rows.
func (b *bench) fastNetwork(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(pluginDir, "ptp")); err != nil || os.Geteuid() != 0 {
		return nil
	}
	dir := filepath.Join(b.dir, "cni")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	conf := fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"crishim-bench","plugins":[{"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"198.18.76.0/24"}]]}}]}`, dir)
	if err := os.WriteFile(filepath.Join(dir, "10.conflist"), conf, 0o600); err != nil {
		return err
	}
	flags := []string{"--network-plugin", "cni", "--cni-conf-dir", dir, "--cni-bin-dir", pluginDir, "--cni-cache-dir", filepath.Join(dir, "cache")}
	usual, err := b.startServe(ctx, "cni", b.host, flags...)
	if err != nil {
		return err
	}
	b.undo = append(b.undo, usual.stop)
	fast, err := b.startServe(ctx, "cni-fast", b.host, append(flags, "--fast-pod-network")...)
	if err != nil {
		return err
	}
	b.undo = append(b.undo, fast.stop)
	return b.paired(ctx, fast, usual)
}

func (b *bench) paired(ctx context.Context, fast, usual *runtime) error {
	ours, theirs := map[string][]float64{}, map[string][]float64{}
	for i := range b.runs/2 + 1 {
		if i == 1 { // the first ones found what the others find in caches
			clear(ours)
			clear(theirs)
		}
		for _, turn := range []struct {
			r    *runtime
			took map[string][]float64
		}{{fast, ours}, {usual, theirs}} {
			if err := b.networkOf(ctx, turn.r, turn.took); err != nil {
				return err
			}
		}
	}
	for _, what := range []string{"RunPodSandbox", "StopPodSandbox"} {
		var ratios []float64
		for i, v := range ours[what] {
			ratios = append(ratios, v/theirs[what][i])
		}
		r := row{What: what + ", CNI, fast network", Unit: milliseconds, PeerName: "without",
			Ours: summarize(ours[what]), Peer: summarize(theirs[what]), Ratio: summarize(ratios)}
		if what == "RunPodSandbox" {
			r.Target = target{MaxRatio: 0.7}
		}
		b.add(r)
	}
	return nil
}

// networkOf takes one pod such as a kubelet's through its life.
func (b *bench) networkOf(ctx context.Context, r *runtime, took map[string][]float64) error {
	config := podConfig("network")
	config.Hostname = "network"
	config.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1"}}
	start := time.Now()
	id, err := r.runPod(ctx, config)
	if err != nil {
		return err
	}
	took["RunPodSandbox"] = append(took["RunPodSandbox"], since(start))
	start = time.Now()
	_, err = r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	took["StopPodSandbox"] = append(took["StopPodSandbox"], since(start))
	return errors.Join(err, r.removePod(ctx, id))
}
