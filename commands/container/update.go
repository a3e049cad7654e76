package container

import (
	"context"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
)

type updateOptions struct {
	cli.Targets
	resources *runtimeapi.LinuxContainerResources
	windows   runtimeapi.WindowsContainerResources // with --compat=crictl only
}

func NewUpdate(in *cli.Invocation) *cli.Verb {
	r := &runtimeapi.LinuxContainerResources{}
	o := &updateOptions{resources: r}
	return &cli.Verb{
		Usage:       "Update the resource limits of containers",
		ArgsUsage:   "CONTAINER...",
		Args:        cli.CompleteContainers(),
		Description: cli.WithExamples("Updates the given limits and keeps the others.", "crishim update --memory 512Mi web", "crishim update --cpu-quota 50000 --cpu-period 100000 web"),
		Flags: []urfave.Flag{
			cli.IntFlag(&r.CpuPeriod, "cpu-period", "Set the period of the CPU quota to `MICROSECONDS`"),
			cli.IntFlag(&r.CpuQuota, "cpu-quota", "Limit CPU time in each period to `MICROSECONDS`"),
			cli.IntFlag(&r.CpuShares, "cpu-share", "Set the CPU shares to the relative `WEIGHT`"),
			cli.Typed(&r.MemoryLimitInBytes, parseSize, "memory", "Limit memory to `SIZE`: 512Mi, 1g").Number(),
			cli.StringFlag(&r.CpusetCpus, "cpuset-cpus", "Allow execution only on `CPUS`: 0-3, 0,2"),
			cli.StringFlag(&r.CpusetMems, "cpuset-mems", "Allow memory only of `NODES`: 0-3, 0,2"),
			cli.IntFlag(&r.OomScoreAdj, "oom-score-adj", "Adjust the OOM killer's preference by `SCORE`: -1000 to 1000"),
			cli.SelectorFlag(&o.Selector, "l"),
			o.NamespaceFlag(),
			&urfave.Int64Flag{Name: "cpu-count", Hidden: true, Destination: &o.windows.CpuCount},
			&urfave.Int64Flag{Name: "cpu-maximum", Hidden: true, Destination: &o.windows.CpuMaximum},
		},
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *updateOptions) check(in *cli.Invocation, c *urfave.Context) error {
	if err := o.Targets.Check(in, c); err != nil {
		return err
	}
	if in.Compat { // crictl update works without any limit, and accepts the limits for Windows
		return nil
	}
	for _, windows := range []string{"cpu-count", "cpu-maximum"} {
		if c.IsSet(windows) {
			return cli.Usagef("--%s is for Windows containers", windows)
		}
	}
	for _, flag := range c.Command.Flags {
		if name := flag.Names()[0]; name != "selector" && c.IsSet(name) {
			return nil
		}
	}
	return cli.Usagef("update needs a limit to change: --memory, --cpu-quota, ...")
}

func (o *updateOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	containers, err := o.Containers(ctx, conn, client.PreferRunning, "")
	return cli.Batch[*runtimeapi.Container]{
		What: "container",
		Do: func(_ *cli.Printer, c cli.ContainerTarget) error {
			request := &runtimeapi.UpdateContainerResourcesRequest{ContainerId: c.Object.GetId(), Linux: o.resources}
			if o.windows.CpuCount != 0 || o.windows.CpuMaximum != 0 {
				request.Windows = &o.windows
			}
			_, err := conn.Runtime.UpdateContainerResources(ctx, request)
			return err
		},
		Done: "%s",
	}.Run(printer, &o.Targets, containers, err)
}
