package commands

import (
	"cmp"
	"context"
	"slices"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

type podsOptions struct {
	filter filter
	view   view
}

// newPods lists pod sandboxes in every state.
func newPods(env *Env) *cli.Command {
	o := &podsOptions{}
	return &cli.Command{
		Name:  "pods",
		Usage: "list pods",
		Description: describe("Pod sandboxes in every state, newest first.",
			"crishim pods", "crishim pods --state ready -q", "crishim pods --namespace '^kube-system$' -o wide"),
		Flags: slices.Concat(o.view.listFlags(output.PodColumns), o.filter.podFlags(), []cli.Flag{
			stringFlag(&o.filter.id, "id", "pods whose id begins with `ID`"),
			o.view.wideFlag(),
		}),
		Action: env.connected(o.check, o.run),
	}
}

func (o *podsOptions) check(env *Env, c *cli.Context) error {
	return cmp.Or(argCount(c, 0, 0), o.filter.check(false), o.view.check(env))
}

func (o *podsOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	pods, err := o.filter.pods(ctx, conn)
	if err != nil {
		return err
	}
	return output.Pods(env.Out, &runtimeapi.ListPodSandboxResponse{Items: pods}, o.view.Options)
}
