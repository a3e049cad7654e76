package node

import (
	"context"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

// NewVersion returns the verb that shows the versions of crishim and the runtime. Check prints crishim's own, so that it
// is shown even without a runtime. --compat=crictl, several nodes and formats for programs omit it.
func NewVersion(in *cli.Invocation) *cli.Verb {
	v := &cli.View{}
	return &cli.Verb{
		Usage: "Show the versions of crishim and of the runtime",
		Description: cli.WithExamples("Shows crishim's version, and the name, version and CRI version of the runtime. JSON and the other formats for\n"+
			"programs contain only the runtime's answer; crishim --version prints only crishim's version.",
			"crishim version", "crishim version -o json"),
		Flags: v.Flags(),
		Check: func(in *cli.Invocation, c *urfave.Context) error {
			if err := v.CheckAlone(in, c); err != nil || in.Compat || v.Nodes || v.Format.ForMachines() {
				return err
			}
			return in.Printer.Say("crishim:  %s", in.OwnVersion()) // also where no runtime answers
		},
		RunOn: func(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
			res, err := conn.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
			if err != nil {
				return err
			}
			return output.Version(printer.Out, res, v.Options)
		},
	}
}
