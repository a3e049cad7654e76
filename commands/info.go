package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/output"
)

// newInfo shows the runtime's conditions and configuration.
func newInfo(env *Env) *cli.Command {
	return &cli.Command{
		Name:  "info",
		Usage: "show the runtime's conditions and configuration",
		Description: describe("Conditions, runtime handlers, features and, unless --quiet, what else the runtime tells about itself.",
			"crishim info", "crishim info -o jsonpath='{.status.conditions[*].type}'"),
		Flags: append(formatFlags(),
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "leave out the runtime's own details"}),
		Action: action(env, infoOptionsOf, runInfo),
	}
}

type infoOptions struct {
	quiet  bool
	output output.Options
}

func infoOptionsOf(env *Env, c *cli.Context) (o infoOptions, err error) {
	if err = noArgs(c); err != nil {
		return o, err
	}
	o.quiet = c.Bool("quiet")
	o.output, err = readFormat(env, c)
	o.output.Quiet = false
	return o, err
}

func (o infoOptions) request() *runtimeapi.StatusRequest {
	return &runtimeapi.StatusRequest{Verbose: !o.quiet}
}

func runInfo(ctx context.Context, env *Env, o infoOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	res, err := conn.Runtime.Status(ctx, o.request())
	if err != nil {
		return err
	}
	return output.Info(env.Out, res, o.output)
}
