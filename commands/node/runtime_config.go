package node

import (
	"context"
	"fmt"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/output"
)

// NewRuntimeConfig returns the verb that shows the runtime's settings for a kubelet.
func NewRuntimeConfig(in *cli.Invocation) *cli.Verb {
	v := &cli.View{}
	return &cli.Verb{
		Usage:       "Show the runtime's cgroup driver",
		Description: cli.WithExamples("Shows the setting that a kubelet reads from the runtime before it starts.", "crishim runtime-config"),
		Flags:       v.Flags(),
		Check:       v.CheckAlone,
		RunOn: cli.Show(v, func(ctx context.Context, conn *client.Conn) (*runtimeapi.RuntimeConfigResponse, error) {
			return conn.Runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
		}, output.RuntimeConfig),
	}
}

// NewUpdateRuntimeConfig returns the verb that sets the pod CIDR of the runtime.
func NewUpdateRuntimeConfig(in *cli.Invocation) *cli.Verb {
	cidr := ""
	return &cli.Verb{
		Usage:       "Set the pod CIDR of the runtime",
		Description: cli.WithExamples("Sends the pod CIDR, as a kubelet does when its node gets one.", "crishim update-runtime-config --pod-cidr 10.244.3.0/24"),
		Flags:       []urfave.Flag{cli.CIDRFlag(&cidr, "pod-cidr", "Set the pod `CIDR`, or two separated by a comma for dual stack", "p")},
		Check: func(_ *cli.Invocation, c *urfave.Context) error {
			if cidr == "" && !c.Args().Present() {
				return &cli.UsageError{Text: c.Command.Name + " needs --pod-cidr", Kind: argv.NoArguments}
			}
			return cli.ArgCount(c, 0, 0)
		},
		RunOn: func(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
			_, err := conn.Runtime.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{
				RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr}},
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(printer.Err, "Runtime config updated")
			return err
		},
	}
}
