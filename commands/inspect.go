package commands

import (
	"context"
	"slices"

	"github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newInspect shows all that the runtime knows of containers.
func newInspect(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "inspect",
		Usage:     "show everything about containers",
		ArgsUsage: "[CONTAINER...]",
		Description: describe("Containers by name, pod/container or id; without arguments those that the filters choose, running ones unless --all.\nOne container is an object, several are an array.",
			"crishim inspect web", "crishim inspect web -o jsonpath='{.status.state}'", "crishim inspect --all -q"),
		Flags: append(append(formatFlags(), containerFilterFlags()...),
			attemptFlag(),
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "leave out the runtime's own details"}),
		Action: action(env, inspectOptionsOf, runInspect),
	}
}

type inspectOptions struct {
	targets []string
	attempt *uint32
	filter  containerFilter
	quiet   bool
	output  output.Options
}

func inspectOptionsOf(env *Env, c *cli.Context) (o inspectOptions, err error) {
	o.targets, o.quiet = c.Args().Slice(), c.Bool("quiet")
	if o.attempt, err = readAttempt(c); err != nil {
		return o, err
	}
	if o.filter, err = readContainerFilter(c); err != nil {
		return o, err
	}
	o.output, err = readFormat(env, c)
	o.output.Quiet = false
	return o, err
}

func (o inspectOptions) request(id string) *runtimeapi.ContainerStatusRequest {
	return &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: !o.quiet}
}

func runInspect(ctx context.Context, env *Env, o inspectOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	ids, failed := o.ids(ctx, conn)
	var found []*runtimeapi.ContainerStatusResponse
	failed = join(failed, each(ids, func(id string) error {
		res, err := o.one(ctx, conn, id)
		if err == nil {
			found = append(found, res)
		}
		return err
	}))
	if len(found) == 0 && failed != nil {
		return failed
	}
	return join(output.InspectContainers(env.Out, found, o.output), failed)
}

// one asks for a container by its id. For an id from an argument that the
// runtime does not know, the error is the one that names have.
func (o inspectOptions) one(ctx context.Context, conn *client.Conn, id string) (*runtimeapi.ContainerStatusResponse, error) {
	res, err := conn.Runtime.ContainerStatus(ctx, o.request(id))
	if status.Code(err) != codes.NotFound || !slices.Contains(o.targets, id) {
		return res, err
	}
	c, nerr := conn.FindContainer(ctx, client.Query{Ref: id, Want: client.Any, Attempt: o.attempt})
	if nerr != nil {
		return nil, nerr
	}
	if c.GetId() == id { // it is listed, so it has just gone, or its status is what is missing
		return nil, err
	}
	return conn.Runtime.ContainerStatus(ctx, o.request(c.GetId()))
}

// ids are the containers that arguments name, or filters choose. A full id is
// not looked up first.
func (o inspectOptions) ids(ctx context.Context, conn *client.Conn) (ids []string, err error) {
	if len(o.targets) > 0 {
		err = each(o.targets, func(ref string) error {
			if client.IsFullID(ref) {
				ids = append(ids, ref)
				return nil
			}
			c, err := conn.FindContainer(ctx, client.Query{Ref: ref, Want: client.Any, Attempt: o.attempt})
			if err == nil {
				ids = append(ids, c.GetId())
			}
			return err
		})
		return ids, err
	}
	containers, err := o.filter.list(ctx, conn)
	for _, c := range containers {
		ids = append(ids, c.GetId())
	}
	return ids, err
}
