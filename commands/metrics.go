package commands

import (
	"bytes"
	"context"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newMetricDescs lists the metrics that a runtime knows.
func newMetricDescs(env *Env) *cli.Command {
	v := &view{}
	return &cli.Command{
		Name:        "metricdescs",
		Usage:       "list the metrics that the runtime knows",
		Description: describe("The names, help texts and labels of what metricsp gives.", "crishim metricdescs -o yaml"),
		Flags:       v.flags(),
		Action: env.connected(v.checkAlone, func(ctx context.Context, env *Env, conn *client.Conn) error {
			res, err := conn.Runtime.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
			if err != nil {
				return err
			}
			return output.MetricDescriptors(env.Out, res, v.Options)
		}),
	}
}

// metricsInterval is the pause of metricsp --watch.
const metricsInterval = time.Second

// newMetricsp shows the metrics of every pod.
func newMetricsp(env *Env) *cli.Command {
	v, watch := &view{}, false
	return &cli.Command{
		Name:        "metricsp",
		Usage:       "show the metrics of pods",
		Description: describe("What a kubelet scrapes for cAdvisor's metrics, as the runtime gives it.", "crishim metricsp -o json"),
		Flags:       append(v.flags(), boolFlag(&watch, "watch", "refresh until interrupted", "w")),
		Action: env.connected(v.checkAlone, func(ctx context.Context, env *Env, conn *client.Conn) error {
			return refresh(ctx, watch, metricsInterval, func(ctx context.Context) error {
				res, err := conn.Runtime.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
				if err != nil {
					return err
				}
				var page bytes.Buffer
				if err := output.Metrics(&page, res, v.Options); err != nil {
					return err
				}
				_, err = env.Out.Write(page.Bytes())
				return err
			})
		}),
	}
}
