package pod

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

func NewMetricDescs(*cli.Invocation) *cli.Verb {
	v := &cli.View{}
	return &cli.Verb{
		Usage:       "List the metrics of the runtime",
		Description: cli.WithExamples("Lists the names, help texts and labels of the metrics that metricsp shows.", "crishim metricdescs -o yaml"),
		Flags:       v.Flags(),
		Check:       v.CheckAlone,
		RunOn: cli.Show(v, func(ctx context.Context, conn *client.Conn) (*runtimeapi.ListMetricDescriptorsResponse, error) {
			return conn.Runtime.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
		}, output.MetricDescriptors),
	}
}

const metricsInterval = time.Second

func NewMetricsp(*cli.Invocation) *cli.Verb {
	v, watch := &cli.View{}, false
	return &cli.Verb{
		Usage:       "Show the metrics of pods",
		Description: cli.WithExamples("Shows the metrics that a kubelet takes from the runtime instead of cAdvisor.", "crishim metricsp -o json"),
		Flags:       append(v.Flags(), cli.BoolFlag(&watch, "watch", "Refresh until interrupted", "w")),
		Check:       v.CheckAlone,
		RunOn: func(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
			return cli.Refresh(ctx, watch, metricsInterval, func(ctx context.Context) error {
				res, err := conn.Runtime.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
				if err != nil {
					return err
				}
				return output.Metrics(printer.Out, res, v.Options)
			})
		},
	}
}
