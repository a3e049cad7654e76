package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newInspectp shows all that the runtime knows of pods.
func newInspectp(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "inspectp",
		Usage:     "show everything about pods",
		ArgsUsage: "[POD...]",
		Description: describe("Pods by name, namespace/name or id; without arguments those that the filters choose.\nOne pod is an object, several are an array.",
			"crishim inspectp web", "crishim inspectp web -o go-template='{{.status.network.ip}}'"),
		Flags: append(append(formatFlags(), podFilterFlags()...),
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "leave out the runtime's own details"}),
		Action: action(env, inspectpOptionsOf, runInspectp),
	}
}

type inspectpOptions struct {
	targets []string
	filter  podFilter
	quiet   bool
	output  output.Options
}

func inspectpOptionsOf(env *Env, c *cli.Context) (o inspectpOptions, err error) {
	o.targets, o.quiet = c.Args().Slice(), c.Bool("quiet")
	if o.filter, err = readPodFilter(c); err != nil {
		return o, err
	}
	o.output, err = readFormat(env, c)
	o.output.Quiet = false
	return o, err
}

func (o inspectpOptions) request(id string) *runtimeapi.PodSandboxStatusRequest {
	return &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: !o.quiet}
}

func runInspectp(ctx context.Context, env *Env, o inspectpOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	ids, failed := o.ids(ctx, conn)
	var found []*runtimeapi.PodSandboxStatusResponse
	failed = join(failed, each(ids, func(id string) error {
		res, err := conn.Runtime.PodSandboxStatus(ctx, o.request(id))
		if err == nil {
			found = append(found, res)
		}
		return err
	}))
	if len(found) == 0 && failed != nil {
		return failed
	}
	return join(output.InspectPods(env.Out, found, o.output), failed)
}

// ids are the pods that arguments name, or filters choose.
func (o inspectpOptions) ids(ctx context.Context, conn *client.Conn) (ids []string, err error) {
	if len(o.targets) > 0 {
		err = each(o.targets, func(ref string) error {
			p, err := conn.Pod(ctx, ref, client.Any)
			if err == nil {
				ids = append(ids, p.GetId())
			}
			return err
		})
		return ids, err
	}
	pods, err := o.filter.list(ctx, conn)
	for _, p := range pods {
		ids = append(ids, p.GetId())
	}
	return ids, err
}
