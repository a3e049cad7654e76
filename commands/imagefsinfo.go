package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newImagefsinfo shows how much the image filesystem holds.
func newImagefsinfo(env *Env) *cli.Command {
	v := &view{}
	return &cli.Command{
		Name:  "imagefsinfo",
		Usage: "show how much images take on disk",
		Description: describe("The filesystems that hold images and containers, with bytes and inodes used.",
			"crishim imagefsinfo", "crishim imagefsinfo -o table"),
		Flags: v.flags(),
		Action: env.connected(v.checkAlone, func(ctx context.Context, env *Env, conn *client.Conn) error {
			res, err := conn.Image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
			if err != nil {
				return err
			}
			return output.ImageFsInfo(env.Out, res, v.Options)
		}),
	}
}
