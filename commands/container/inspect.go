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

func NewInspect(in *cli.Invocation) *cli.Verb {
	o := &inspectOptions{}
	return &cli.Verb{
		Usage:     "Show detailed information on containers",
		ArgsUsage: "[CONTAINER...]",
		Args:      cli.CompleteContainers(),
		Description: cli.WithExamples("Shows containers by name, pod/container or ID; without arguments, the containers that the filters choose, only running ones unless --all is given.\nOne container is an object, several are an array.",
			"crishim inspect web", "crishim inspect web -o jsonpath='{.status.state}'", "crishim inspect web -o go-template='{{.status.exitCode}}'", "crishim inspect --all -q"),
		Flags: slices.Concat(o.view.Flags(), o.filter.ContainerFlags(in), []urfave.Flag{cli.AttemptFlag(&o.attempt), cli.DetailsFlag(&o.quiet)}),
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *inspectOptions) check(in *cli.Invocation, c *urfave.Context) error {
	o.refs, o.filter.Crictl = c.Args().Slice(), in.Compat
	return cmp.Or(o.filter.Check(true), o.view.Check(in))
}

func (o *inspectOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) (failed error) {
	var containers []*runtimeapi.Container
	if len(o.refs) == 0 {
		containers, failed = o.filter.Containers(ctx, conn)
	}
	failed = cli.Join(failed, cli.Each(o.refs, func(ref string) error {
		query := o.filter.In.Query(ref, client.NewestAttempt)
		query.Attempt = o.attempt
		c, err := &runtimeapi.Container{Id: ref}, error(nil)
		if !client.IsFullID(ref) || o.filter.In.Namespace != "" {
			c, err = conn.FindContainer(ctx, query)
		}
		if err == nil {
			containers = append(containers, c)
		}
		return err
	}))
	return cli.ShowEach(printer, o.view, output.InspectContainers, containers, len(o.refs) == 0, failed, func(c *runtimeapi.Container) (*runtimeapi.ContainerStatusResponse, error) {
		res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: !o.quiet})
		if cli.IsGone(err) { // a failed lookup returns the same error for all runtimes
			_, missing := conn.Container(ctx, c.GetId(), client.NewestAttempt)
			err = cmp.Or(missing, err)
		}
		return res, err
	})
}
