package node

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

// NewInfo returns the verb that shows the runtime's conditions and configuration.
func NewInfo(in *cli.Invocation) *cli.Verb {
	v, quiet := &cli.View{}, false
	return &cli.Verb{
		Usage: "Show the runtime's conditions and configuration",
		Description: cli.WithExamples("Shows conditions, runtime handlers, features and, unless --quiet is given, the rest of the runtime's verbose status.",
			"crishim info", "crishim info -o jsonpath='{.status.conditions[*].type}'"),
		Flags: append(v.Flags(), cli.DetailsFlag(&quiet)),
		Check: v.CheckAlone,
		RunOn: cli.Show(v, func(ctx context.Context, conn *client.Conn) (*runtimeapi.StatusResponse, error) {
			return conn.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: !quiet})
		}, output.Info),
	}
}
