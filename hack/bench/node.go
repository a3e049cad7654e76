package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// clients make pods at the same time.
const clients = 10

// bursts makes many pods by ten clients at once, and the same calls of the
// engine without crishim.
func (b *bench) bursts(ctx context.Context) error {
	rec, err := b.recordPod(ctx)
	if err != nil {
		return err
	}
	var ours, theirs, ratios []float64
	for round := range b.heavy - 1 {
		mine, err := b.madePerSecond(ctx, b.serve.removePods, func(i int) (string, error) {
			return b.serve.runPod(ctx, podConfig(fmt.Sprintf("burst-%d-%d", round, i)))
		})
		if err != nil {
			return err
		}
		raw, err := b.madePerSecond(ctx, b.removeContainers, func(i int) (string, error) {
			return b.replay(ctx, rec, fmt.Sprintf("crishim-bench-raw-%d-%d", round, i))
		})
		if err != nil {
			return err
		}
		ours, theirs, ratios = append(ours, mine), append(theirs, raw), append(ratios, mine/raw)
	}
	b.add(row{What: fmt.Sprintf("%d pods by %d clients", b.burst, clients), Unit: perSecond, Ours: summarize(ours), Peer: summarize(theirs), Ratio: summarize(ratios),
		PeerName: "the same engine calls", Target: target{MinRatio: 0.9}})
	return nil
}

// madePerSecond makes pods, returns how many it made a second, and removes them.
func (b *bench) madePerSecond(ctx context.Context, remove func(context.Context, []string) error, do func(i int) (string, error)) (float64, error) {
	ids := make([]string, b.burst)
	start := time.Now()
	err := each(len(ids), clients, func(i int) (err error) { ids[i], err = do(i); return err })
	rate := float64(len(ids)) / time.Since(start).Seconds()
	return rate, errors.Join(err, remove(ctx, ids))
}

// fullNode measures with hundreds of pods, some of them with a container.
func (b *bench) fullNode(ctx context.Context) error {
	pods := make([]string, b.pods)
	b.undo = append(b.undo, func() error { return b.serve.removePods(ctx, pods) })
	if err := each(len(pods), clients, func(i int) (err error) {
		config := hostPod(fmt.Sprint("full-", i))
		if pods[i], err = b.serve.runPod(ctx, config); err != nil || i >= b.busy {
			return err
		}
		_, err = b.serve.startContainer(ctx, pods[i], config, containerConfig(b.image, "main", "sleep", "100000"))
		return err
	}); err != nil {
		return err
	}
	if err := b.memory(fmt.Sprintf("memory of serve, %d pods", b.pods)); err != nil {
		return err
	}
	if err := b.stats(ctx); err != nil {
		return err
	}
	if err := b.measure(pair{what: fmt.Sprintf("pods, %d pods, dialled", b.pods), runs: b.runs / 2, ours: b.served(ctx, "pods"), peerName: "docker ps -a", peer: docker(ctx, "ps", "-a")}); err != nil {
		return err
	}
	if err := each(b.burst, clients, func(i int) error {
		id, err := b.serve.runPod(ctx, hostPod(fmt.Sprint("churn-", i)))
		if err != nil {
			return err
		}
		return b.serve.removePod(ctx, id)
	}); err != nil {
		return err
	}
	return b.memory(fmt.Sprintf("memory of serve, %d pods, %d came and went", b.pods, b.burst))
}

// stats measures what containers use. -o json is one sample; the table takes
// two, a second apart. The peer always takes two.
func (b *bench) stats(ctx context.Context) error {
	ours := func(run func(context.Context, ...string) func() error) pair {
		return pair{runs: b.heavy, ours: run(ctx, "stats", "-o", "json"), peerName: "docker stats --no-stream", peer: docker(ctx, "stats", "--no-stream")}
	}
	for _, way := range []struct {
		name string
		run  func(context.Context, ...string) func() error
	}{{"embedded", b.embedded}, {"dialled", b.served}} {
		p := ours(way.run)
		p.what = fmt.Sprintf("stats, %d containers, %s", b.busy, way.name)
		if err := b.measure(p); err != nil {
			return err
		}
		if err := b.measure(pair{what: fmt.Sprintf("stats, %d containers, %s, beyond start", b.busy, way.name), runs: b.runs / 3, ours: p.ours,
			peerName: "crishim --version", peer: func() error { return command(ctx, nil, b.crishim, "--version") }}); err != nil {
			return err
		}
		b.difference(target{Max: 100})
	}
	return nil
}

// difference turns the last row into what ours takes more than the peer.
func (b *bench) difference(t target) {
	r := &b.results.Rows[len(b.results.Rows)-1]
	own := r.Peer.Median
	r.Ours = figures{r.Ours.N, r.Ours.Low - own, r.Ours.Median - own, r.Ours.Top - own}
	r.Peer, r.Ratio, r.PeerName, r.Target = figures{}, figures{}, "", t
}

// memory notes what serve holds, in residence.
func (b *bench) memory(what string) error {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.serve.cmd.Process.Pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(raw)) {
		var kib float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kib); err == nil {
			b.add(row{What: what, Unit: mebibytes, Ours: one(kib / 1024), Target: target{Max: 60}})
			return nil
		}
	}
	return errors.New("/proc says nothing of serve's memory")
}
