package image

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

func NewImagefsinfo(in *cli.Invocation) *cli.Verb {
	v := &cli.View{}
	return &cli.Verb{
		Usage: "Show the disk usage of images",
		Description: cli.WithExamples("Lists the filesystems that hold images and containers, with their used bytes and inodes.",
			"crishim imagefsinfo", "crishim imagefsinfo -o table"),
		Flags:  v.Flags(),
		Images: true,
		Check:  v.CheckAlone,
		RunOn: cli.Show(v, func(ctx context.Context, conn *client.Conn) (*runtimeapi.ImageFsInfoResponse, error) {
			return conn.Image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		}, output.ImageFsInfo),
	}
}
