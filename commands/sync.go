package commands

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/internal/metricsserver"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/output"
)

type syncOptions struct {
	loop    kuberuntime.LoopOptions
	once    bool
	wait    podWait
	metrics string
	runtime podRuntimeOptions
}

// newSync keeps the pods of a folder running: static pods without a kubelet.
func newSync(env *Env) *cli.Command {
	o := &syncOptions{
		loop: kuberuntime.LoopOptions{
			GC:     kuberuntime.GCPolicy{MaxPerContainer: kuberuntime.DefaultGCPolicy().MaxPerContainer, MaxContainers: -1},
			Images: kuberuntime.DefaultImagePolicy(), Logs: kuberuntime.DefaultLogPolicy(),
		},
		runtime: podRuntimeOptions{qps: 5, burst: 10},
	}
	return &cli.Command{
		Name:      "sync",
		Usage:     "keep the pods of a folder of manifests running",
		ArgsUsage: "FOLDER",
		Description: describe("Adds, changes and removes pods as their manifests in the folder come, change and go; probes them, restarts what ends, rotates logs, collects garbage. "+
			"Ctrl-C ends sync and leaves the pods running; the next sync adopts them.",
			"crishim sync /etc/crishim/pods", "crishim sync --once --wait pods/"),
		Flags: slices.Concat([]cli.Flag{
			boolFlag(&o.once, "once", "bring the pods to what the folder says, and end"),
			stringFlag(&o.metrics, "metrics-addr", "serve Prometheus metrics at `ADDRESS`, such as 127.0.0.1:9100"),
			boolFlag(&o.runtime.serial, "serialize-image-pulls", "pull one image at a time"),
			&cli.Float64Flag{Name: "registry-qps", Usage: "start at most `N` pulls a second (0: no limit)", Value: o.runtime.qps, Destination: &o.runtime.qps},
			intFlag(&o.runtime.burst, "registry-burst", "and up to `N` at once"),
			int64Flag(&o.loop.Logs.MaxSize, "container-log-max-size", "rotate a log at `BYTES` (0: never)"),
			intFlag(&o.loop.Logs.MaxFiles, "container-log-max-files", "keep `N` files of a log"),
			intFlag(&o.loop.GC.MaxPerContainer, "max-per-container", "keep `N` dead attempts of a container (-1: all)"),
		}, o.wait.flags(), imagePolicyFlags(&o.loop.Images)),
		Action: env.offline(o.check, o.run),
	}
}

func imagePolicyFlags(p *kuberuntime.ImagePolicy) []cli.Flag {
	return []cli.Flag{
		intFlag(&p.High, "image-high", "remove unused images from `PERCENT` disk use on (0: never)"),
		intFlag(&p.Low, "image-low", "until `PERCENT` is reached"),
	}
}

func checkImagePolicy(p kuberuntime.ImagePolicy) error {
	if p.High < 0 || p.High > 100 || p.Low < 0 || p.Low > p.High {
		return usagef("invalid --image-high %d and --image-low %d: must be 0 <= low <= high <= 100", p.High, p.Low)
	}
	return nil
}

func (o *syncOptions) check(_ *Env, c *cli.Context) error {
	if err := o.wait.check(c); err != nil {
		return err
	}
	o.loop.Folder, o.runtime.patient, o.runtime.stays = c.Args().First(), o.once, !o.once
	switch {
	case o.wait.Until != kuberuntime.UntilStarted && !o.once:
		return usagef("--wait is for --once")
	case o.once && o.metrics != "":
		return usagef("--metrics-addr is not for --once")
	}
	return cmp.Or(checkImagePolicy(o.loop.Images), argCount(c, 1, 1))
}

func (o *syncOptions) run(ctx context.Context, env *Env) error {
	registry := prometheus.NewRegistry()
	o.runtime.steps, o.runtime.registerer = statusLines(env), registry
	r, err := openPodRuntime(ctx, env, o.runtime)
	if err != nil {
		return err
	}
	defer r.close()
	o.loop.Problem = func(what string, err error) { // of the folder or the runtime as a whole
		if err == nil {
			fmt.Fprintf(env.Err, "%s: fine\n", what)
			return
		}
		for _, one := range failures(err) {
			env.warn("%s: %s", what, sentence(env, one))
		}
	}
	loop, err := r.NewLoop(o.loop)
	if err != nil {
		return err
	}
	defer loop.Close()
	if o.once {
		ctx, cancel := o.wait.limit(ctx)
		defer cancel()
		return loop.Once(ctx, o.wait.Wait)
	}
	if o.metrics != "" {
		mux := http.NewServeMux()
		mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		server := metricsserver.New(o.metrics, mux, log.New(io.Discard, "", 0))
		at, err := server.Start(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(env.Err, "metrics at http://%s/metrics\n", at)
		defer func() {
			if err := server.Stop(); err != nil {
				env.debugf("metrics: %v", err)
			}
		}()
	}
	fmt.Fprintf(env.Err, "looking after %s on %s\n", output.Sanitize(o.loop.Folder), output.Sanitize(r.conn.RuntimeEndpoint))
	loop.Run(ctx)
	return nil
}

// statusLines shows each change as a line. A warning that says what the last line of
// its container said, such as that of a probe which fails every second, is none.
func statusLines(env *Env) func(kuberuntime.Event) {
	type subject struct{ namespace, pod, container string }
	var mu sync.Mutex
	last := map[subject]string{}
	return func(e kuberuntime.Event) {
		of := subject{e.Namespace, e.Pod, e.Container}
		mu.Lock()
		same := e.Warning && last[of] == e.Message
		last[of] = e.Message
		mu.Unlock()
		if same {
			return
		}
		name, kind := e.Namespace+"/"+e.Pod, ""
		if e.Container != "" {
			name += "/" + e.Container
		}
		if e.Warning {
			kind = " warning:"
		}
		if err := env.say("%s %s:%s %s", e.Time.Format(time.TimeOnly), name, kind, e.Message); err != nil {
			env.debugf("write status: %v", err)
		}
	}
}
