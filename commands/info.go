package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newInfo shows the runtime's conditions and configuration.
func newInfo(env *Env) *cli.Command {
	v, quiet := &view{}, false
	return &cli.Command{
		Name:  "info",
		Usage: "show the runtime's conditions and configuration",
		Description: describe("Conditions, runtime handlers, features and, unless --quiet, what else the runtime tells about itself.",
			"crishim info", "crishim info -o jsonpath='{.status.conditions[*].type}'"),
		Flags: append(v.flags(), detailsFlag(&quiet)),
		Action: env.connected(v.checkAlone, func(ctx context.Context, env *Env, conn *client.Conn) error {
			res, err := conn.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: !quiet})
			if err != nil {
				return err
			}
			return output.Info(env.Out, res, v.Options)
		}),
	}
}
