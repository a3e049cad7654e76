package commands

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/internal/metricsserver"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/output"
)

// newSync keeps the pods of a folder running: static pods without a kubelet.
func newSync(env *Env) *cli.Command {
	logs, gc, images := kuberuntime.DefaultLogPolicy(), kuberuntime.DefaultGCPolicy(), kuberuntime.DefaultImagePolicy()
	return &cli.Command{
		Name:      "sync",
		Usage:     "keep the pods of a folder of manifests running",
		ArgsUsage: "FOLDER",
		Description: describe("Adds, changes and removes pods as their manifests in the folder come, change and go; probes them, restarts what ends, rotates logs, collects garbage. "+
			"Ctrl-C ends sync and leaves the pods running; the next sync adopts them.",
			"crishim sync /etc/crishim/pods", "crishim sync --once --wait pods/"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "once", Usage: "bring the pods to what the folder says, and end"},
			newWaitFlag(), waitTimeoutFlag(),
			&cli.StringFlag{Name: "metrics-addr", Usage: "serve Prometheus metrics at `ADDRESS`, such as 127.0.0.1:9100"},
			&cli.BoolFlag{Name: "serialize-image-pulls", Usage: "pull one image at a time"},
			&cli.Float64Flag{Name: "registry-qps", Usage: "start at most `N` pulls a second (0: no limit)", Value: 5},
			&cli.IntFlag{Name: "registry-burst", Usage: "and up to `N` at once", Value: 10},
			&cli.Int64Flag{Name: "container-log-max-size", Usage: "rotate a log at `BYTES` (0: never)", Value: logs.MaxSize},
			&cli.IntFlag{Name: "container-log-max-files", Usage: "keep `N` files of a log", Value: logs.MaxFiles},
			&cli.IntFlag{Name: "max-per-container", Usage: "keep `N` dead attempts of a container (-1: all)", Value: gc.MaxPerContainer},
			&cli.IntFlag{Name: "image-high", Usage: "remove unused images from `PERCENT` disk use on (0: never)", Value: images.High},
			&cli.IntFlag{Name: "image-low", Usage: "until `PERCENT` is reached", Value: images.Low},
		},
		Action: action(env, syncOptionsOf, runSync),
	}
}

type syncOptions struct {
	loop    kuberuntime.LoopOptions
	once    bool
	wait    kuberuntime.Wait
	timeout time.Duration
	metrics string
	runtime podRuntimeOptions
}

func syncOptionsOf(_ *Env, c *cli.Context) (o syncOptions, err error) {
	o.once, o.metrics = c.Bool("once"), c.String("metrics-addr")
	if o.wait, o.timeout, err = waitOf(c); err != nil {
		return o, err
	}
	o.runtime = podRuntimeOptions{patient: o.once, stays: !o.once, serial: c.Bool("serialize-image-pulls"), qps: c.Float64("registry-qps"), burst: c.Int("registry-burst")}
	o.loop = kuberuntime.LoopOptions{
		Folder: c.Args().First(), GC: kuberuntime.GCPolicy{MaxPerContainer: c.Int("max-per-container"), MaxContainers: -1},
		Images: kuberuntime.ImagePolicy{High: c.Int("image-high"), Low: c.Int("image-low")},
		Logs:   kuberuntime.LogPolicy{MaxSize: c.Int64("container-log-max-size"), MaxFiles: c.Int("container-log-max-files")},
	}
	switch {
	case o.wait.Until != kuberuntime.UntilStarted && !o.once:
		return o, usagef("--wait is for --once")
	case o.once && o.metrics != "":
		return o, usagef("--metrics-addr is not for --once")
	}
	if err := checkImagePolicy(o.loop.Images); err != nil {
		return o, err
	}
	return o, argCount(c, 1, 1)
}

func checkImagePolicy(p kuberuntime.ImagePolicy) error {
	if p.High < 0 || p.High > 100 || p.Low < 0 || p.Low > p.High {
		return usagef("--image-high %d and --image-low %d: want 0 <= low <= high <= 100", p.High, p.Low)
	}
	return nil
}

func runSync(ctx context.Context, env *Env, o syncOptions) error {
	registry := prometheus.NewRegistry()
	o.runtime.steps, o.runtime.registerer = env.statusLines(), registry
	r, err := env.podRuntime(ctx, o.runtime)
	if err != nil {
		return err
	}
	defer r.close()
	o.loop.Problem = env.sayProblem
	loop, err := r.NewLoop(o.loop)
	if err != nil {
		return err
	}
	defer loop.Close()
	if o.once {
		if o.timeout > 0 {
			limited, cancel := context.WithTimeoutCause(ctx, o.timeout, gaveUp(o.timeout))
			defer cancel()
			ctx = limited
		}
		return loop.Once(ctx, o.wait)
	}
	if o.metrics != "" {
		stop, err := serveMetrics(ctx, env, o.metrics, registry)
		if err != nil {
			return err
		}
		defer stop()
	}
	fmt.Fprintf(env.Err, "looking after %s on %s\n", output.Sanitize(o.loop.Folder), output.Sanitize(r.conn.RuntimeEndpoint))
	loop.Run(ctx)
	return nil
}

// statusLines shows each change as a line. A warning that says what the last line of
// its container said, such as that of a probe which fails every second, is none.
func (env *Env) statusLines() func(kuberuntime.Event) {
	type subject struct{ namespace, pod, container string }
	var mu sync.Mutex
	last := map[subject]string{}
	return func(e kuberuntime.Event) {
		of := subject{e.Namespace, e.Pod, e.Container}
		mu.Lock()
		same := e.Warning && last[of] == e.Message
		last[of] = e.Message
		mu.Unlock()
		if !same {
			env.statusLine(e)
		}
	}
}

// statusLine is a line of sync: a time, what it is about, what happened.
func (env *Env) statusLine(e kuberuntime.Event) {
	name := e.Namespace + "/" + e.Pod
	if e.Container != "" {
		name += "/" + e.Container
	}
	kind := ""
	if e.Warning {
		kind = " warning:"
	}
	if err := env.say("%s %s:%s %s", e.Time.Format(time.TimeOnly), name, kind, e.Message); err != nil {
		env.debugf("write status: %v", err)
	}
}

// sayProblem tells of the folder or the runtime as a whole.
func (env *Env) sayProblem(what string, err error) {
	if err == nil {
		fmt.Fprintf(env.Err, "%s: fine\n", what)
		return
	}
	for _, one := range failures(err) {
		env.warn("%s: %s", what, sentence(env, one))
	}
}

// serveMetrics answers /metrics until it is stopped.
func serveMetrics(ctx context.Context, env *Env, address string, registry *prometheus.Registry) (stop func(), err error) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := metricsserver.New(address, mux, log.New(io.Discard, "", 0))
	at, err := server.Start(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(env.Err, "metrics at http://%s/metrics\n", at)
	return func() {
		if err := server.Stop(); err != nil {
			env.debugf("metrics: %v", err)
		}
	}, nil
}
