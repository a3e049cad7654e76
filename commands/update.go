package commands

import (
	"context"

	"github.com/docker/go-units"
	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// newUpdate changes the limits of containers.
func newUpdate(env *Env) *cli.Command {
	return &cli.Command{
		Name:        "update",
		Usage:       "change the limits of containers",
		ArgsUsage:   "CONTAINER...",
		Description: describe("Changes what is given and leaves the rest.", "crishim update --memory 512Mi web", "crishim update --cpu-quota 50000 --cpu-period 100000 web"),
		Flags: []cli.Flag{
			&cli.Int64Flag{Name: "cpu-period", Usage: "period of the CPU quota in `MICROSECONDS`"},
			&cli.Int64Flag{Name: "cpu-quota", Usage: "CPU time in each period in `MICROSECONDS`"},
			&cli.Int64Flag{Name: "cpu-share", Usage: "relative `WEIGHT` of the CPU time"},
			&cli.StringFlag{Name: "memory", Usage: "limit memory to `SIZE`: 536870912, 512Mi, 1g"},
			&cli.StringFlag{Name: "cpuset-cpus", Usage: "run on `CPUS` only: 0-3, 0,2"},
			&cli.StringFlag{Name: "cpuset-mems", Usage: "use memory of `NODES` only"},
			&cli.Int64Flag{Name: "oom-score-adj", Usage: "`SCORE` for the kernel when memory runs out"},
			selectorFlag(),
			&cli.Int64Flag{Name: "cpu-count", Hidden: true},
			&cli.Int64Flag{Name: "cpu-maximum", Hidden: true},
		},
		Action: action(env, updateOptionsOf, runUpdate),
	}
}

type updateOptions struct {
	choice    choice
	resources *runtimeapi.LinuxContainerResources
}

func updateOptionsOf(_ *Env, c *cli.Context) (o updateOptions, err error) {
	if o.choice, err = readChoice(c); err != nil {
		return o, err
	}
	for _, windows := range []string{"cpu-count", "cpu-maximum"} {
		if c.IsSet(windows) {
			return o, usagef("--%s is for Windows containers", windows)
		}
	}
	o.resources = &runtimeapi.LinuxContainerResources{
		CpuPeriod: c.Int64("cpu-period"), CpuQuota: c.Int64("cpu-quota"), CpuShares: c.Int64("cpu-share"),
		CpusetCpus: c.String("cpuset-cpus"), CpusetMems: c.String("cpuset-mems"), OomScoreAdj: c.Int64("oom-score-adj"),
	}
	if text := c.String("memory"); text != "" {
		o.resources.MemoryLimitInBytes, err = units.RAMInBytes(binarySuffix(text))
		if err != nil || o.resources.MemoryLimitInBytes < 0 {
			return o, usagef("--memory %s: want a size such as 512Mi or 1g", quote(text))
		}
	}
	for _, flag := range c.Command.Flags {
		if name := flag.Names()[0]; name != "selector" && c.IsSet(name) {
			return o, nil
		}
	}
	return o, usagef("update needs a limit to change: --memory, --cpu-quota, ...")
}

func (o updateOptions) request(id string) *runtimeapi.UpdateContainerResourcesRequest {
	return &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: o.resources}
}

func runUpdate(ctx context.Context, env *Env, o updateOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	containers, failed := o.choice.containers(ctx, conn, client.PreferRunning, nil)
	if failed == nil {
		o.choice.warnOfNone(env, "container", len(containers))
	}
	return join(failed, inParallel(env, containers, func(env *Env, c target[*runtimeapi.Container]) error {
		if _, err := conn.Runtime.UpdateContainerResources(ctx, o.request(c.thing.GetId())); err != nil {
			return about(c.ref, err)
		}
		return env.say("%s", c.ref)
	}))
}
