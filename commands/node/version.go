package node

import (
	"context"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

// NewVersion shows which runtime answers, the first thing to know about a node.
func NewVersion(env *cli.Env) *urfave.Command {
	v := &cli.View{}
	return &urfave.Command{
		Name:  "version",
		Usage: "show the runtime's name and version",
		Description: cli.WithExamples("Asks the runtime who it is and which CRI version it speaks. crishim's own version is crishim --version.",
			"crishim version", "crishim version -o json"),
		Flags: v.Flags(),
		Action: cli.Show(env, v, func(ctx context.Context, conn *client.Conn) (*runtimeapi.VersionResponse, error) {
			return conn.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
		}, output.Version),
	}
}
