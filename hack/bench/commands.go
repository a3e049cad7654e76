package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// start measures the short verbs, each as a whole process.
func (b *bench) start(ctx context.Context) error {
	version := func() error { return command(ctx, nil, b.crishim, "--version") }
	if err := b.measure(pair{what: "crishim --version", target: target{MaxRatio: 1}, peerName: "docker --version", runs: b.runs, ours: version, peer: docker(ctx, "--version")}); err != nil {
		return err
	}
	if err := b.measureOrQuote(pair{what: "crishim --version", target: target{MaxRatio: 1}, peerName: "crictl --version", runs: b.runs, ours: version, peer: b.ctl(ctx, "--version")}, 9); err != nil {
		return err
	}
	for _, v := range []struct {
		ours, name string
		crictl     float64
	}{{"version", "version", 0}, {"images", "images", 16}, {"ps", "ps", 15.5}, {"inspect " + b.container, "inspect", 18.4}} {
		args := strings.Fields(v.ours)
		p := pair{target: target{MaxRatio: 1.05}, runs: b.runs, peerName: "docker " + v.name, peer: docker(ctx, args...)}
		p.what, p.ours = v.name+", embedded", b.embedded(ctx, args...)
		if err := b.measure(p); err != nil {
			return err
		}
		p.what, p.ours, p.target = v.name+", dialled", b.served(ctx, args...), target{MaxRatio: 1}
		if err := b.measure(p); err != nil {
			return err
		}
		if b.crictl == "" && v.name == "version" { // which has no figure from elsewhere
			continue
		}
		p.peerName, p.peer = "crictl, same endpoint", b.ctl(ctx, args...)
		if err := b.measureOrQuote(p, v.crictl); err != nil {
			return err
		}
	}
	return nil
}

// measureOrQuote is measure, but quotes a figure where the peer is not on this machine.
func (b *bench) measureOrQuote(p pair, figure float64) error {
	if p.peer != nil {
		return b.measure(p)
	}
	if err := b.measure(p); err != nil {
		return err
	}
	last := &b.results.Rows[len(b.results.Rows)-1]
	*last = last.quote(p.peerName, figure)
	return nil
}

// execs are short commands in a container.
func (b *bench) execs(ctx context.Context) error {
	args := []string{"exec", b.container, "true"}
	p := pair{target: target{MaxRatio: 1.1}, runs: b.runs, peerName: "docker exec", peer: docker(ctx, args...)}
	p.what, p.ours = "exec true, embedded", b.embedded(ctx, args...)
	if err := b.measure(p); err != nil {
		return err
	}
	p.what, p.ours = "exec true, dialled", b.served(ctx, args...)
	if err := b.measure(p); err != nil {
		return err
	}
	p.peerName, p.peer = "crictl, same endpoint", b.ctl(ctx, args...)
	return b.measureOrQuote(p, 57)
}

// binary notes the size of the program.
func (b *bench) binary(context.Context) error {
	info, err := os.Stat(b.crishim)
	if err != nil {
		return err
	}
	size := float64(info.Size()) / 1e6
	r := row{What: "binary", Unit: megabytes, Ours: one(size), Target: target{Max: 40}}
	if path, err := exec.LookPath("docker"); err == nil {
		if info, err := os.Stat(path); err == nil {
			peer := float64(info.Size()) / 1e6
			r.Peer, r.Ratio, r.PeerName = one(peer), one(size/peer), "docker"
		}
	}
	b.add(r)
	return nil
}

// lists are lists of a thousand.
func (b *bench) lists(ctx context.Context) error {
	if err := b.manyContainers(ctx); err != nil {
		return err
	}
	// The table for people asks for the status of each container that has ended, which no peer shows: a row without a floor.
	list := []string{"ps", "-a", "-o", "json"}
	theirs := docker(ctx, "ps", "-a", "--format", "json")
	if err := b.long(target{MaxRatio: 1}, []pair{
		{what: "ps -a -o json, %d containers, embedded", ours: b.embedded(ctx, list...), peerName: "docker ps -a --format json", peer: theirs},
		{what: "ps -a -o json, %d containers, dialled", ours: b.served(ctx, list...), peerName: "docker ps -a --format json", peer: theirs},
		{what: "ps -a -o json, %d containers, dialled", ours: b.served(ctx, list...), peerName: "crictl, same endpoint", peer: b.ctl(ctx, list...)},
	}); err != nil {
		return err
	}
	if err := b.long(target{}, []pair{
		{what: "ps -a, %d ended containers, embedded", ours: b.embedded(ctx, "ps", "-a"), peerName: "docker ps -a", peer: docker(ctx, "ps", "-a")},
		{what: "ps -a, %d ended containers, dialled", ours: b.served(ctx, "ps", "-a"), peerName: "docker ps -a", peer: docker(ctx, "ps", "-a")},
	}); err != nil {
		return err
	}
	if err := b.restarts(ctx); err != nil {
		return err
	}
	if err := b.manyImages(ctx); err != nil {
		return err
	}
	return b.long(target{MaxRatio: 1}, []pair{
		{what: "images, %d images, embedded", ours: b.embedded(ctx, "images"), peerName: "docker images", peer: docker(ctx, "images")},
		{what: "images, %d images, dialled", ours: b.served(ctx, "images"), peerName: "docker images", peer: docker(ctx, "images")},
	})
}

// long measures rows about long lists. Those whose peer is not on this machine
// are left out.
func (b *bench) long(floor target, rows []pair) error {
	for _, p := range rows {
		if p.peer == nil {
			continue
		}
		p.what, p.runs, p.target = fmt.Sprintf(p.what, b.listed), b.runs/2, floor
		if err := b.measure(p); err != nil {
			return err
		}
	}
	return nil
}

// manyContainers makes containers, one pod's, that have ended.
func (b *bench) manyContainers(ctx context.Context) error {
	config := hostPod("lists")
	pod, err := b.serve.runPod(ctx, config)
	if err != nil {
		return err
	}
	ids := make([]string, b.listed)
	b.undo = append(b.undo, func() error { return b.serve.removePod(context.WithoutCancel(ctx), pod) }, func() error { return b.removeContainers(ctx, ids) })
	return each(len(ids), 8, func(i int) (err error) {
		ids[i], err = b.serve.startContainer(ctx, pod, config, containerConfig(b.image, fmt.Sprint("listed-", i), "true"))
		return err
	})
}

// restarts measures the start of another serve until its Status answers.
func (b *bench) restarts(ctx context.Context) error {
	var took []float64
	for range b.heavy + 2 {
		r, err := b.startServe(ctx, "again", b.host)
		if err != nil {
			return err
		}
		took = append(took, float64(r.ready.Microseconds())/1000)
		if err := r.stop(); err != nil {
			return err
		}
	}
	b.add(row{What: fmt.Sprintf("start of serve with %d containers", b.listed), Unit: milliseconds, Ours: summarize(took), Target: target{Max: 1000}})
	return nil
}
