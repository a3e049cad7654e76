package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/gogc"
	"github.com/crishim/crishim/internal/metricsserver"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/output"
)

type syncOptions struct {
	loop    kuberuntime.LoopOptions
	input   inputOptions
	once    bool
	wait    podWait
	metrics string
	runtime podRuntimeOptions
}

func NewSync(in *cli.Invocation) *cli.Verb {
	o := &syncOptions{
		loop: kuberuntime.LoopOptions{
			GC:     kuberuntime.GCPolicy{MaxPerContainer: kuberuntime.DefaultGCPolicy().MaxPerContainer, MaxContainers: -1},
			Images: kuberuntime.DefaultImagePolicy(), Logs: kuberuntime.DefaultLogPolicy(),
		},
		runtime: podRuntimeOptions{qps: 5, burst: 10},
	}
	return &cli.Verb{
		Usage:     "Keep the pods of a manifest directory running",
		ArgsUsage: "DIR",
		Args:      cli.CompleteFiles,
		Description: cli.WithExamples("Creates, changes and deletes pods as their manifests in the directory appear, change and disappear. Probes containers, restarts ended ones, rotates logs and removes garbage. "+
			"Ctrl-C ends sync and leaves the pods running; the next sync adopts them.",
			"crishim sync /etc/crishim/pods", "crishim sync --once --wait pods/"),
		Flags: slices.Concat([]urfave.Flag{
			cli.BoolFlag(&o.once, "once", "Sync the pods with the directory once and exit"),
			cli.StringFlag(&o.metrics, "metrics-addr", "Serve Prometheus metrics at `ADDRESS`, such as 127.0.0.1:9100"),
			cli.BoolFlag(&o.runtime.serial, "serialize-image-pulls", "Pull one image at a time"),
			&urfave.Float64Flag{Name: "registry-qps", Usage: "Start at most `N` pulls per second; 0 sets no limit", Value: o.runtime.qps, Destination: &o.runtime.qps},
			cli.IntFlag(&o.runtime.burst, "registry-burst", "Allow bursts of `N` pulls"),
			cli.BoolFlag(&o.runtime.limitedSwap, "limited-swap", "Let Burstable containers swap in proportion to their memory requests (cgroup v2)"),
			cli.BoolFlag(&o.runtime.singleOOM, "single-process-oom-kill", "Kill one process instead of the container when memory runs out (cgroup v2)"),
			cli.IntFlag(&o.loop.Logs.MaxSize, "container-log-max-size", "Rotate a log at `BYTES`; 0 never rotates"),
			cli.IntFlag(&o.loop.Logs.MaxFiles, "container-log-max-files", "Keep `N` files of a log"),
			cli.IntFlag(&o.loop.GC.MaxPerContainer, "max-per-container", "Keep `N` dead attempts of a container; -1 keeps all"),
		}, o.input.flags(), o.runtime.plugins.Flags(), o.wait.flags(), imagePolicyFlags(&o.loop.Images)),
		GC:    gogc.Serve,
		Check: o.check,
		Run:   o.run,
	}
}

func imagePolicyFlags(p *kuberuntime.ImagePolicy) []urfave.Flag {
	return []urfave.Flag{
		cli.IntFlag(&p.High, "image-high", "Remove unused images when disk usage reaches `PERCENT`; 0 never removes them"),
		cli.IntFlag(&p.Low, "image-low", "Remove unused images until disk usage is below `PERCENT`"),
	}
}

func checkImagePolicy(p kuberuntime.ImagePolicy) error {
	if p.High < 0 || p.High > 100 || p.Low < 0 || p.Low > p.High {
		return cli.Usagef("invalid --image-high %d and --image-low %d: must be 0 <= low <= high <= 100", p.High, p.Low)
	}
	return nil
}

func (o *syncOptions) check(in *cli.Invocation, c *urfave.Context) error {
	if err := cmp.Or(o.input.check(in, c), o.wait.check(c)); err != nil {
		return err
	}
	o.loop.Manifests = o.input.Options
	o.loop.Dir, o.runtime.pullsWait = c.Args().First(), o.once
	switch {
	case o.wait.Until != kuberuntime.UntilStarted && !o.once:
		return cli.Usagef("--wait needs --once")
	case o.once && o.metrics != "":
		return cli.Usagef("--metrics-addr cannot be used with --once")
	}
	if err := cmp.Or(checkImagePolicy(o.loop.Images), cli.ArgCount(c, 1, 1), o.runtime.plugins.Load(in)); err != nil {
		return err
	}
	if !cli.IsDir(o.loop.Dir) {
		return cli.BadInput(fmt.Errorf("there is no directory %s", o.loop.Dir))
	}
	return nil
}

func (o *syncOptions) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	connector.LongRunning = !o.once
	registry := prometheus.NewRegistry()
	o.runtime.steps, o.runtime.registerer = statusLines(printer), registry
	r, err := openPodRuntime(ctx, printer, connector, o.runtime)
	if err != nil {
		return err
	}
	defer r.close()
	// Problem receives problems of the directory, the runtime and periodic tasks, and taken names of pods. Other problems of
	// pods are events.
	o.loop.Problem = func(what string, err error) {
		now := printer.Now().Format(time.TimeOnly)
		if err == nil {
			fmt.Fprintf(printer.Err, "%s %s: the problem is solved\n", now, what)
			return
		}
		for _, one := range cli.Failures(err) {
			printer.Warn("%s %s: %w", now, what, one)
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
		var errs []error
		for _, err := range cli.Failures(loop.RunOnce(ctx, o.wait.Wait)) {
			if _, wrong := errors.AsType[*manifest.Error](err); wrong {
				err = cli.BadInput(err)
			}
			errs = append(errs, err)
		}
		return cli.Join(errs...)
	}
	if o.metrics != "" {
		mux := http.NewServeMux()
		mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		server := metricsserver.New(o.metrics, mux, log.New(io.Discard, "", 0))
		at, err := server.Start(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(printer.Err, "metrics at http://%s/metrics\n", at)
		defer func() {
			if err := server.Stop(); err != nil {
				printer.Debugf("metrics: %v", err)
			}
		}()
	}
	fmt.Fprintf(printer.Err, "syncing %s on %s\n", output.Sanitize(o.loop.Dir), output.Sanitize(r.conn.RuntimeEndpoint))
	loop.Run(ctx)
	return nil
}

// statusLines writes each event as a line. It omits a warning that repeats the last line of its container, for example
// of a probe that fails every second.
func statusLines(printer *cli.Printer) func(kuberuntime.Event) {
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
		line := []cli.Span{{Tone: output.Faint, Text: e.Time.Format(time.TimeOnly)}, {Text: " " + name + ":"}, {Tone: output.Warn, Text: kind}, {Text: " " + e.Message}}
		if err := printer.SaySpans(line...); err != nil {
			printer.Debugf("write status: %v", err)
		}
	}
}
