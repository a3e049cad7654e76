package container

import (
	"context"
	"errors"
	"fmt"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/fanout"
	"github.com/crishim/crishim/output"
)

// inMany runs the command in each container. The first failure in the order of the containers
// decides the status. With --parallel it runs in all at once, and each line of output begins with
// its container's name.
func (o *execOptions) inMany(ctx context.Context, env *cli.Env, conn *client.Conn, containers []*runtimeapi.Container) error {
	containers = cli.NamePods(ctx, conn, containers)
	nameOf := cli.ContainerName
	if cli.NeedNamespaces(containers) {
		nameOf = func(c *runtimeapi.Container) string { return cli.SourceOf(c).FullName() }
	}
	ignored := func(c *runtimeapi.Container, err error) bool {
		if !o.ignore || ctx.Err() != nil {
			return false
		}
		env.Warn("%s: %v", nameOf(c), err)
		return true
	}
	if !o.parallel {
		for _, c := range containers {
			if env.Compat && !o.quiet {
				fmt.Fprintf(env.Out, "%s:\n", c.GetId())
			} else if !o.quiet && len(containers) > 1 {
				fmt.Fprintf(env.Err, "==> %s <==\n", output.Sanitize(nameOf(c)))
			}
			if err := o.inOne(ctx, conn, c, o.session.Streams(env)); err != nil && !ignored(c, err) {
				return err
			}
		}
		return nil
	}
	var line sync.Mutex
	var running sync.WaitGroup
	errs := make([]error, len(containers))
	for i, c := range containers {
		running.Go(func() {
			prefix := ""
			if !o.quiet && !env.Compat {
				prefix = output.Sanitize(nameOf(c)) + ": "
			}
			out := fanout.NewLineWriter(env.Out, &line, prefix)
			errOut := fanout.NewLineWriter(env.Err, &line, prefix)
			err := errors.Join(o.inOne(ctx, conn, c, stream.Streams{Out: out, Err: errOut}), out.Flush(), errOut.Flush())
			if err != nil && !ignored(c, err) {
				errs[i] = cli.About(nameOf(c), err)
			}
		})
	}
	running.Wait()
	return cli.Join(errs...)
}
