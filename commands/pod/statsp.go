package pod

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

type statspOptions struct {
	cli.StatsOptions
	unmeasured func(pods []string, err error) // called for pods that the runtime does not measure
}

func NewStatsp(in *cli.Invocation) *cli.Verb {
	o := &statspOptions{}
	return &cli.Verb{
		Usage:       "Show the resource usage of pods",
		ArgsUsage:   "[POD...]",
		Args:        cli.CompletePods,
		Description: cli.WithExamples("Shows the same values as stats, for all containers of a pod together, and its network.", "crishim statsp", "crishim statsp -o json"),
		Flags:       o.Flags(output.PodStatsColumns),
		Check:       o.Check,
		RunOn:       o.run,
	}
}

func (o *statspOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	o = new(*o) // a copy, because several nodes run at once and share o
	filter := &runtimeapi.PodSandboxStatsFilter{Id: o.Filter.ID, LabelSelector: o.Filter.Selector.Equalities()}
	ids, err := o.Chosen(printer, func(ref string) (string, error) {
		pod, err := conn.PodOf(ctx, o.Filter.In.Query(ref, client.RunningAttempt))
		return pod.GetId(), err
	})
	if err != nil {
		return err
	}
	if len(ids) == 1 {
		filter.Id = ids[0]
	}
	warned := map[string]bool{}
	o.unmeasured = func(pods []string, err error) {
		pods = slices.DeleteFunc(pods, func(pod string) bool { return warned[pod] }) // once per pod, not at each refresh
		for _, pod := range pods {
			warned[pod] = true
		}
		switch {
		case len(pods) == 0:
		case o.View.Format.ForMachines():
			printer.Warn("%s cannot be measured: %w", strings.Join(pods, ", "), err)
		default:
			printer.Warn("the runtime does not measure %s as a whole: shown are its containers together, without network (%w)", strings.Join(pods, ", "), err)
		}
	}
	sample := func(ctx context.Context) ([]*runtimeapi.PodSandboxStats, error) {
		return o.list(ctx, conn, filter, ids)
	}
	cpu := func(s *runtimeapi.PodSandboxStats) *runtimeapi.CpuUsage { return s.GetLinux().GetCpu() }
	return cli.ShowStats(ctx, printer, conn, &o.StatsOptions, false, sample, cpu,
		func(w io.Writer, before, after []*runtimeapi.PodSandboxStats, more cli.Extras) error {
			return output.PodStats(w, &runtimeapi.ListPodSandboxStatsResponse{Stats: after}, podUsages(before, after, more), o.View.Options)
		})
}

func (o *statspOptions) list(ctx context.Context, conn *client.Conn, filter *runtimeapi.PodSandboxStatsFilter, ids []string) ([]*runtimeapi.PodSandboxStats, error) {
	res, err := conn.Runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{Filter: filter})
	all := res.GetStats()
	switch status.Code(err) {
	case codes.Unknown, codes.Internal, codes.NotFound:
		all, err = o.oneByOne(ctx, conn, filter, ids, err)
	}
	return slices.DeleteFunc(all, func(s *runtimeapi.PodSandboxStats) bool {
		a := s.GetAttributes()
		return !strings.HasPrefix(a.GetId(), filter.GetId()) || len(ids) > 0 && !slices.Contains(ids, a.GetId()) || !o.Filter.Selector.Matches(a.GetLabels()) ||
			o.Filter.In.Namespace != "" && o.Filter.In.Namespace != a.GetMetadata().GetNamespace()
	}), err
}

// oneByOne asks for the stats of each pod after the list call has failed. containerd 1.6 fails the whole list if one pod
// has no cgroup of its own. oneByOne warns about pods without stats. For a table it sets their stats to the sums of their
// containers' stats. If no pod has stats, oneByOne returns the error of the list call, unless the output is a table and
// the runtime implements the call.
func (o *statspOptions) oneByOne(ctx context.Context, conn *client.Conn, statsFilter *runtimeapi.PodSandboxStatsFilter, ids []string, failed error) ([]*runtimeapi.PodSandboxStats, error) {
	pods, err := (&cli.Filter{ID: statsFilter.GetId(), In: o.Filter.In, Selector: o.Filter.Selector, State: "ready"}).Pods(ctx, conn)
	if err != nil {
		return nil, failed
	}
	var all, unmeasured []*runtimeapi.PodSandboxStats
	var names []string
	var reason error
	for _, p := range pods {
		if len(ids) > 0 && !slices.Contains(ids, p.GetId()) {
			continue
		}
		res, err := conn.Runtime.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.GetId()})
		switch {
		case cli.IsGone(err):
			continue
		case err != nil:
			res = &runtimeapi.PodSandboxStatsResponse{Stats: &runtimeapi.PodSandboxStats{Attributes: &runtimeapi.PodSandboxAttributes{
				Id: p.GetId(), Metadata: p.GetMetadata(), Labels: p.GetLabels(), Annotations: p.GetAnnotations(),
			}}}
			names, reason = append(names, cli.PodPath(p.GetMetadata())), cmp.Or(reason, err)
			unmeasured = append(unmeasured, res.GetStats())
		}
		all = append(all, res.GetStats())
	}
	programs := o.View.Format.ForMachines()
	if len(unmeasured) == len(all) && (programs || strings.Contains(failed.Error(), "not implemented")) {
		return nil, failed
	}
	if !programs {
		if err := addContainers(ctx, conn, unmeasured); err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	o.unmeasured(names, reason)
	return all, nil
}

// addContainers sets the stats of pods to the sums of their containers' stats.
func addContainers(ctx context.Context, conn *client.Conn, pods []*runtimeapi.PodSandboxStats) error {
	if len(pods) == 0 {
		return nil
	}
	stats, err := conn.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		return err
	}
	containers, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	podOf := map[string]string{}
	for _, c := range containers.GetContainers() {
		podOf[c.GetId()] = c.GetPodSandboxId()
	}
	for _, p := range pods {
		cpu, memory := &runtimeapi.CpuUsage{UsageCoreNanoSeconds: &runtimeapi.UInt64Value{}}, &runtimeapi.MemoryUsage{WorkingSetBytes: &runtimeapi.UInt64Value{}}
		for _, s := range stats.GetStats() {
			if podOf[s.GetAttributes().GetId()] == p.GetAttributes().GetId() {
				cpu.Timestamp = max(cpu.Timestamp, s.GetCpu().GetTimestamp())
				cpu.UsageCoreNanoSeconds.Value += s.GetCpu().GetUsageCoreNanoSeconds().GetValue()
				memory.WorkingSetBytes.Value += s.GetMemory().GetWorkingSetBytes().GetValue()
			}
		}
		p.Linux = &runtimeapi.LinuxPodSandboxStats{Cpu: cpu, Memory: memory}
	}
	return nil
}

// podUsages returns the rows of two samples.
func podUsages(before, after []*runtimeapi.PodSandboxStats, more cli.Extras) []output.Usage {
	earlier := map[string]*runtimeapi.CpuUsage{}
	for _, s := range before {
		earlier[s.GetAttributes().GetId()] = s.GetLinux().GetCpu()
	}
	var usages []output.Usage
	for _, s := range after {
		a, l := s.GetAttributes(), s.GetLinux()
		network := cli.NetworkOf(s)
		u := output.Usage{
			ID: a.GetId(), Name: a.GetMetadata().GetName(), Pod: a.GetMetadata().GetName(), Namespace: a.GetMetadata().GetNamespace(),
			CPUPercent: cli.CPUPercent(earlier[a.GetId()], l.GetCpu()),
			Memory:     cli.Amount(l.GetMemory().GetWorkingSetBytes()), MemoryLimit: cli.MemoryLimit(l.GetMemory()),
			Disk: cli.UnknownAmount, Inodes: cli.UnknownAmount, Swap: cli.UnknownAmount,
			NetworkIn: network.In, NetworkOut: network.Out,
			Pids: cli.Amount(l.GetProcess().GetProcessCount()),
		}
		more.FillBlocks(&u)
		usages = append(usages, u)
	}
	cli.SortUsages(usages)
	return usages
}
