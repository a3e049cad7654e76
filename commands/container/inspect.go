package container

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

type inspectOptions struct {
	refs    []string
	attempt *uint32
	filter  cli.Filter
	quiet   bool
	view    cli.View
}

func NewInspect(env *cli.Env) *cli.Verb {
	o := &inspectOptions{}
	return &cli.Verb{
		Name:      "inspect",
		Usage:     "show detailed information on containers",
		ArgsUsage: "[CONTAINER...]",
		Args:      cli.Containers(),
		Description: cli.WithExamples("Containers by name, pod/container or id; without arguments those that the filters choose, running ones unless --all.\nOne container is an object, several are an array.",
			"crishim inspect web", "crishim inspect web -o jsonpath='{.status.state}'", "crishim inspect --all -q"),
		Flags:  slices.Concat(o.view.Flags(), o.filter.ContainerFlags(env), []urfave.Flag{cli.AttemptFlag(&o.attempt), cli.DetailsFlag(&o.quiet)}),
		Action: env.Connected(o.check, o.run),
	}
}

func (o *inspectOptions) check(env *cli.Env, c *urfave.Context) error {
	o.refs, o.filter.Crictl = c.Args().Slice(), env.Compat
	return cmp.Or(o.filter.Check(true), o.view.Check(env))
}

func (o *inspectOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	refs := o.refs
	if len(refs) == 0 {
		containers, err := o.filter.Containers(ctx, conn)
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
	return cli.ShowEach(env, o.view, output.InspectContainers, refs, len(o.refs) == 0, nil, func(ref string) (*runtimeapi.ContainerStatusResponse, error) {
		var gone error
		query := o.filter.In.Query(ref, client.Any)
		query.Attempt = o.attempt
		if client.IsFullID(ref) && o.filter.In.Namespace == "" { // it is looked up only if the runtime does not have it
			res, err := status(ref)
			if !cli.IsGone(err) {
				return res, err
			}
			gone = err
		}
		c, err := conn.FindContainer(ctx, query)
		switch {
		case err != nil:
			return nil, err
		case gone != nil && c.GetId() == ref: // it is listed: it has just been removed, or it has no status
			return nil, gone
		}
		return status(c.GetId())
	})
}
