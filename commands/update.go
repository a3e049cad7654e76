package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

type updateOptions struct {
	targets
	resources *runtimeapi.LinuxContainerResources
}

// newUpdate changes the limits of containers.
func newUpdate(env *Env) *cli.Command {
	r := &runtimeapi.LinuxContainerResources{}
	o := &updateOptions{resources: r}
	return &cli.Command{
		Name:        "update",
		Usage:       "change the limits of containers",
		ArgsUsage:   "CONTAINER...",
		Description: describe("Changes what is given and leaves the rest.", "crishim update --memory 512Mi web", "crishim update --cpu-quota 50000 --cpu-period 100000 web"),
		Flags: []cli.Flag{
			int64Flag(&r.CpuPeriod, "cpu-period", "period of the CPU quota in `MICROSECONDS`"),
			int64Flag(&r.CpuQuota, "cpu-quota", "CPU time in each period in `MICROSECONDS`"),
			int64Flag(&r.CpuShares, "cpu-share", "relative `WEIGHT` of the CPU time"),
			typed(&r.MemoryLimitInBytes, parseSize, "memory", "limit memory to `SIZE`: 536870912, 512Mi, 1g"),
			stringFlag(&r.CpusetCpus, "cpuset-cpus", "run on `CPUS` only: 0-3, 0,2"),
			stringFlag(&r.CpusetMems, "cpuset-mems", "use memory of `NODES` only"),
			int64Flag(&r.OomScoreAdj, "oom-score-adj", "`SCORE` for the kernel when memory runs out"),
			selectorFlag(&o.selector),
			&cli.Int64Flag{Name: "cpu-count", Hidden: true},
			&cli.Int64Flag{Name: "cpu-maximum", Hidden: true},
		},
		Action: env.connected(o.check, o.run),
	}
}

func (o *updateOptions) check(env *Env, c *cli.Context) error {
	if err := o.targets.check(env, c); err != nil {
		return err
	}
	for _, windows := range []string{"cpu-count", "cpu-maximum"} {
		if c.IsSet(windows) {
			return usagef("--%s is for Windows containers", windows)
		}
	}
	for _, flag := range c.Command.Flags {
		if name := flag.Names()[0]; name != "selector" && c.IsSet(name) {
			return nil
		}
	}
	return usagef("update needs a limit to change: --memory, --cpu-quota, ...")
}

func (o *updateOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	containers, err := o.containers(ctx, conn, client.PreferRunning, "")
	return batch[*runtimeapi.Container]{
		what: "container",
		do: func(env *Env, c containerTarget) error {
			request := &runtimeapi.UpdateContainerResourcesRequest{ContainerId: c.thing.GetId(), Linux: o.resources}
			if _, err := conn.Runtime.UpdateContainerResources(ctx, request); err != nil {
				return err
			}
			return env.say("%s", c.ref)
		},
	}.run(env, &o.targets, containers, err)
}
