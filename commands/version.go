package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newVersion shows which runtime answers, the first thing to know about a node.
func newVersion(env *Env) *cli.Command {
	v := &view{}
	return &cli.Command{
		Name:  "version",
		Usage: "show the runtime's name and version",
		Description: describe("Asks the runtime who it is and which CRI version it speaks. crishim's own version is crishim --version.",
			"crishim version", "crishim version -o json"),
		Flags: v.flags(),
		Action: env.connected(v.checkAlone, func(ctx context.Context, env *Env, conn *client.Conn) error {
			res, err := conn.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
			if err != nil {
				return err
			}
			return output.Version(env.Out, res, v.Options)
		}),
	}
}
