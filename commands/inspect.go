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

type inspectOptions struct {
	refs    []string
	attempt *uint32
	filter  filter
	quiet   bool
	view    view
}

// newInspect shows all that the runtime knows of containers.
func newInspect(env *Env) *cli.Command {
	o := &inspectOptions{}
	return &cli.Command{
		Name:      "inspect",
		Usage:     "show everything about containers",
		ArgsUsage: "[CONTAINER...]",
		Description: describe("Containers by name, pod/container or id; without arguments those that the filters choose, running ones unless --all.\nOne container is an object, several are an array.",
			"crishim inspect web", "crishim inspect web -o jsonpath='{.status.state}'", "crishim inspect --all -q"),
		Flags:  slices.Concat(o.view.flags(), o.filter.containerFlags(), []cli.Flag{attemptFlag(&o.attempt), detailsFlag(&o.quiet)}),
		Action: env.connected(o.check, o.run),
	}
}

func (o *inspectOptions) check(env *Env, c *cli.Context) error {
	o.refs = c.Args().Slice()
	return cmp.Or(o.filter.check(true), o.view.check(env))
}

func (o *inspectOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	refs := o.refs
	if len(refs) == 0 {
		containers, err := o.filter.containers(ctx, conn)
		if err != nil {
			return err
		}
		for _, c := range containers {
			refs = append(refs, c.GetId())
		}
	}
	status := func(id string) (*runtimeapi.ContainerStatusResponse, error) {
		return conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: !o.quiet})
	}
	return showEach(env, o.view, output.InspectContainers, refs, nil, func(ref string) (*runtimeapi.ContainerStatusResponse, error) {
		var gone error
		if client.IsFullID(ref) { // is looked up only when the runtime does not know it
			res, err := status(ref)
			if !isGone(err) {
				return res, err
			}
			gone = err
		}
		c, err := conn.FindContainer(ctx, client.Query{Ref: ref, Want: client.Any, Attempt: o.attempt})
		switch {
		case err != nil:
			return nil, err
		case gone != nil && c.GetId() == ref: // it is listed, so it has just gone, or its status is what is missing
			return nil, gone
		}
		return status(c.GetId())
	})
}
