package pod

import (
	"cmp"
	"context"
	"slices"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

type podsOptions struct {
	filter cli.Filter
	view   cli.View
}

// NewPods returns the verb that lists pod sandboxes in every state.
func NewPods(env *cli.Env) *urfave.Command {
	o := &podsOptions{}
	return &urfave.Command{
		Name:  "pods",
		Usage: "list pods",
		Description: cli.WithExamples("Pod sandboxes in every state, newest first.",
			"crishim pods", "crishim pods --state ready -q", "crishim pods --namespace '^kube-system$' -o wide"),
		Flags: slices.Concat(o.view.ListFlags(output.PodColumns), o.filter.PodFlags(), []urfave.Flag{
			cli.StringFlag(&o.filter.ID, "id", "pods whose id begins with `ID`"),
			o.view.WideFlag(),
		}),
		Action: env.Connected(o.check, o.run),
	}
}

func (o *podsOptions) check(env *cli.Env, c *urfave.Context) error {
	return cmp.Or(cli.ArgCount(c, 0, 0), o.filter.Check(false), o.view.Check(env))
}

func (o *podsOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	pods, err := o.filter.Pods(ctx, conn)
	if err != nil {
		return err
	}
	return output.Pods(env.Out, &runtimeapi.ListPodSandboxResponse{Items: pods}, o.view.Options)
}
