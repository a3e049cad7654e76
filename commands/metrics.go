package commands

import (
	"bytes"
	"context"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/output"
)

// newMetricDescs lists the metrics that a runtime knows.
func newMetricDescs(env *Env) *cli.Command {
	return &cli.Command{
		Name:        "metricdescs",
		Usage:       "list the metrics that the runtime knows",
		Description: describe("The names, help texts and labels of what metricsp gives.", "crishim metricdescs -o yaml"),
		Flags:       formatFlags(),
		Action:      action(env, versionOptions, runMetricDescs),
	}
}

func runMetricDescs(ctx context.Context, env *Env, o output.Options) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	res, err := conn.Runtime.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
	if err != nil {
		return err
	}
	return output.MetricDescriptors(env.Out, res, o)
}

// metricsOptions are those of metricsp.
type metricsOptions struct {
	watch  bool
	output output.Options
}

// metricsInterval is the pause of metricsp --watch.
const metricsInterval = time.Second

// newMetricsp shows the metrics of every pod.
func newMetricsp(env *Env) *cli.Command {
	return &cli.Command{
		Name:        "metricsp",
		Usage:       "show the metrics of pods",
		Description: describe("What a kubelet scrapes for cAdvisor's metrics, as the runtime gives it.", "crishim metricsp -o json"),
		Flags: append(formatFlags(),
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "go on until interrupted"}),
		Action: action(env, metricsOptionsOf, runMetricsp),
	}
}

func metricsOptionsOf(env *Env, c *cli.Context) (o metricsOptions, err error) {
	if err = noArgs(c); err != nil {
		return o, err
	}
	o.watch = c.Bool("watch")
	o.output, err = readFormat(env, c)
	return o, err
}

func runMetricsp(ctx context.Context, env *Env, o metricsOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return refresh(ctx, o.watch, metricsInterval, func(ctx context.Context) error {
		res, err := conn.Runtime.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
		if err != nil {
			return err
		}
		var page bytes.Buffer
		if err := output.Metrics(&page, res, o.output); err != nil {
			return err
		}
		_, err = env.Out.Write(page.Bytes())
		return err
	})
}
