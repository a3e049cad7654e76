// Command bench measures crishim and what people would use instead, on the
// engine that DOCKER_HOST names: the docker command line and the engine's own
// API always, crictl and cri-dockerd where they are on PATH or named by
// CRISHIM_BENCH_CRICTL and CRISHIM_BENCH_CRI_DOCKERD. It prints one table, writes
// the same as JSON with -json, and compares it with an older one with -compare.
//
// Every row is paired: ours and the peer take turns, so that a machine that
// slows down slows both. Figures are medians; the ratio is the median of the
// pairs' ratios, its spread their quartiles. A peer that is not on this machine
// is quoted with the figure that docs/performance.md explains, marked with a *.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
)

// options are the command line.
type options struct {
	crishim, image, json, compare string
	crictl, criDockerd            string // "" where there is none
	quick                         bool
	only                          string

	runs   int // of a short command
	heavy  int // of what takes a second or more
	listed int // containers, and images, of the rows about long lists
	busy   int // containers whose use is measured
	burst  int // pods that ten clients make at once
	pods   int // pods that serve's memory is measured with
	mib    int // moved by the throughput rows
}

func main() {
	o := options{runs: 30, heavy: 3, listed: 1000, busy: 200, burst: 100, pods: 500, mib: 1024}
	flag.StringVar(&o.crishim, "crishim", "bin/crishim", "the binary to measure")
	flag.StringVar(&o.image, "image", os.Getenv("CRISHIM_TEST_IMAGE"), "a busybox image that the engine has")
	flag.StringVar(&o.json, "json", "", "write the results to this file as well")
	flag.StringVar(&o.compare, "compare", "", "show next to each row what this older file of -json has")
	flag.StringVar(&o.only, "only", "", "only the parts that match this expression: "+partNames())
	flag.BoolVar(&o.quick, "quick", false, "few runs and small numbers: shows that it works, and big changes")
	flag.IntVar(&o.runs, "runs", o.runs, "runs of each short command")
	flag.IntVar(&o.pods, "pods", o.pods, "pods for the memory of serve")
	flag.Parse()
	if o.quick {
		o.runs, o.heavy, o.listed, o.busy, o.burst, o.pods, o.mib = 5, 2, 100, 20, 20, 40, 64
	}
	o.crictl, o.criDockerd = find("CRISHIM_BENCH_CRICTL", "crictl"), find("CRISHIM_BENCH_CRI_DOCKERD", "cri-dockerd")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// find returns the program that a variable names, else the one on PATH, else "".
func find(variable, name string) string {
	if path := os.Getenv(variable); path != "" {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

// A part measures some rows and leaves the engine as it was.
type part struct {
	name string
	do   func(*bench, context.Context) error
}

func parts() []part {
	return []part{
		{"start", (*bench).start}, {"calls", (*bench).calls}, {"lists", (*bench).lists}, {"exec", (*bench).execs}, {"streams", (*bench).streams},
		{"forward", (*bench).forwards}, {"life", (*bench).lifeCycle}, {"burst", (*bench).bursts}, {"node", (*bench).fullNode}, {"size", (*bench).binary},
	}
}

func partNames() string {
	names := ""
	for _, p := range parts() {
		names += " " + p.name
	}
	return names[1:]
}

func run(ctx context.Context, o options) (err error) {
	if o.image == "" {
		return errors.New("no image: set CRISHIM_TEST_IMAGE or -image (make bench does)")
	}
	if o.crishim, err = filepath.Abs(o.crishim); err != nil {
		return err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	var older results
	if o.compare != "" {
		if older, err = readResults(o.compare); err != nil {
			return err
		}
	}
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, p := range parts() {
		if !only.MatchString(p.name) {
			continue
		}
		// What is measured stays when a later part fails.
		if err := b.part(ctx, p); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", p.name, err), b.results.print(older))
		}
	}
	if err := b.results.print(older); err != nil || o.json == "" {
		return err
	}
	return b.results.write(o.json)
}
