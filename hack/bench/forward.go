package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// streams move many bytes through exec.
func (b *bench) streams(ctx context.Context) error {
	out := []string{"exec", b.container, "dd", "if=/dev/zero", "bs=65536", fmt.Sprint("count=", b.mib*16)}
	in := []string{"exec", "-i", b.container, "sh", "-c", "cat >/dev/null"}
	size := float64(b.mib) * 1.048576
	served := []string{"-r", b.serve.endpoint}
	zeros := func(name string, args ...string) func() error {
		return func() error {
			f, err := os.Open("/dev/zero")
			if err != nil {
				return err
			}
			defer f.Close()
			return command(ctx, io.LimitReader(f, int64(b.mib)<<20), name, args...)
		}
	}
	for _, p := range []pair{
		{what: "exec stdout, embedded", target: target{MinRatio: 0.65}, ours: b.embedded(ctx, out...), peer: docker(ctx, out...), peerName: "docker exec"},
		{what: "exec stdout, dialled", target: target{MinRatio: 0.65}, ours: b.served(ctx, out...), peer: docker(ctx, out...), peerName: "docker exec"},
		{what: "exec stdin, embedded", target: target{MinRatio: 0.6}, ours: zeros(b.crishim, append([]string{"-r", "docker://"}, in...)...), peer: zeros("docker", in...), peerName: "docker exec -i"},
		{what: "exec stdin, dialled", target: target{MinRatio: 0.6}, ours: zeros(b.crishim, append(served, in...)...), peer: zeros("docker", in...), peerName: "docker exec -i"},
	} {
		p.runs, p.size = b.heavy+2, size
		if err := b.measure(p); err != nil {
			return err
		}
	}
	return nil
}

// forwards compares a port-forward with a direct connection to the pod, and with
// crictl's.
func (b *bench) forwards(ctx context.Context) error {
	if err := waitFor(ctx, b.podIP+":8080"); err != nil {
		return err
	}
	big := []string{"exec", b.container, "dd", "if=/dev/zero", "of=/tmp/big", "bs=65536", fmt.Sprint("count=", b.mib*16)}
	if err := docker(ctx, big...)(); err != nil {
		return err
	}
	b.undo = append(b.undo, docker(context.WithoutCancel(ctx), "exec", b.container, "rm", "/tmp/big"))
	ours, stop, err := b.startForward(ctx, b.crishim, "-r", b.serve.endpoint, "port-forward", b.pod, ":8080")
	if err != nil {
		return err
	}
	defer stop()
	size := float64(b.mib) * 1.048576
	if err := b.measure(pair{what: "port-forward, one connection", target: target{Max: 5}, runs: 5 * b.runs,
		ours: fetch(ctx, ours), peerName: "direct", peer: fetch(ctx, b.podIP+":8080")}); err != nil {
		return err
	}
	if err := b.measure(pair{what: "port-forward, throughput", target: target{MinRatio: 0.4}, runs: b.heavy + 2, size: size,
		ours: fetch(ctx, ours+"/big"), peerName: "direct", peer: fetch(ctx, b.podIP+":8080/big")}); err != nil {
		return err
	}
	connection := pair{what: "port-forward, one connection", runs: 3, ours: fetch(ctx, ours), peerName: "crictl, same endpoint"}
	through := pair{what: "port-forward, throughput", target: target{MinRatio: 1}, runs: b.heavy, size: size, ours: fetch(ctx, ours+"/big"), peerName: "crictl, same endpoint"}
	if b.crictl != "" {
		theirs, stop, err := b.startForward(ctx, b.crictl, "-r", b.serve.endpoint, "port-forward", b.pod, ":8080")
		if err != nil {
			return err
		}
		defer stop()
		connection.peer, through.peer = fetch(ctx, theirs), fetch(ctx, theirs+"/big")
	} else {
		connection.peerName, through.peerName = "crictl + cri-dockerd", "crictl + cri-dockerd"
	}
	if err := b.measureOrQuote(connection, 508); err != nil {
		return err
	}
	return b.measureOrQuote(through, 182)
}

// startForward starts a port-forward to a free port and reads from its output
// which one it took.
func (b *bench) startForward(ctx context.Context, program string, args ...string) (address string, stop func(), err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended already
		_ = cmd.Wait()                       // a signal is how it ends
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if from, _, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "Forwarding from "), " -> "); ok && strings.HasPrefix(from, "127.") {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return from, stop, nil
		}
	}
	stop()
	return "", nil, fmt.Errorf("port-forward said nothing of an address: %w", cmp.Or(lines.Err(), io.EOF))
}

// fetch reads http://place to its end on a connection of its own.
func fetch(ctx context.Context, place string) func() error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+place, nil)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", place, res.Status)
		}
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
}

// waitFor waits until address accepts.
func waitFor(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
