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

type inspectpOptions struct {
	refs   []string
	filter filter
	quiet  bool
	view   view
}

// newInspectp shows all that the runtime knows of pods.
func newInspectp(env *Env) *cli.Command {
	o := &inspectpOptions{}
	return &cli.Command{
		Name:      "inspectp",
		Usage:     "show everything about pods",
		ArgsUsage: "[POD...]",
		Description: describe("Pods by name, namespace/name or id; without arguments those that the filters choose.\nOne pod is an object, several are an array.",
			"crishim inspectp web", "crishim inspectp web -o go-template='{{.status.network.ip}}'"),
		Flags:  slices.Concat(o.view.flags(), o.filter.podFlags(), []cli.Flag{detailsFlag(&o.quiet)}),
		Action: env.connected(o.check, o.run),
	}
}

func (o *inspectpOptions) check(env *Env, c *cli.Context) error {
	o.refs = c.Args().Slice()
	return cmp.Or(o.filter.check(false), o.view.check(env))
}

func (o *inspectpOptions) run(ctx context.Context, env *Env, conn *client.Conn) (failed error) {
	var pods []*runtimeapi.PodSandbox
	if len(o.refs) == 0 {
		pods, failed = o.filter.pods(ctx, conn)
	}
	failed = join(failed, each(o.refs, func(ref string) error {
		pod, err := conn.Pod(ctx, ref, client.Any)
		if err == nil {
			pods = append(pods, pod)
		}
		return err
	}))
	return showEach(env, o.view, output.InspectPods, pods, failed, func(p *runtimeapi.PodSandbox) (*runtimeapi.PodSandboxStatusResponse, error) {
		return conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.GetId(), Verbose: !o.quiet})
	})
}
