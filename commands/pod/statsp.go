package pod

import (
	"context"
	"io"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

type statspOptions struct {
	cli.StatsOptions
	unmeasured func(*runtimeapi.PodSandbox, error) // called for each pod without stats
}

func NewStatsp(env *cli.Env) *urfave.Command {
	o := &statspOptions{}
	return &urfave.Command{
		Name:        "statsp",
		Usage:       "show the resource usage of pods",
		ArgsUsage:   "[POD...]",
		Description: cli.WithExamples("Like stats, for pods: all containers of a pod together, and its network.", "crishim statsp", "crishim statsp -o json"),
		Flags:       o.Flags(output.PodStatsColumns),
		Action:      env.Connected(o.Check, o.run),
	}
}

func (o *statspOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	filter := &runtimeapi.PodSandboxStatsFilter{Id: o.Filter.ID, LabelSelector: o.Filter.Selector.Equalities()}
	ids, err := o.Chosen(env, func(ref string) (string, error) {
		pod, err := conn.FindPod(ctx, o.Filter.In.Query(ref, client.Running))
		return pod.GetId(), err
	})
	if err != nil {
		return err
	}
	if len(ids) == 1 {
		filter.Id = ids[0]
	}
	warned := map[string]bool{}
	o.unmeasured = func(p *runtimeapi.PodSandbox, err error) {
		if !warned[p.GetId()] { // once, not on each page
			env.Warn("pod %s cannot be measured: %s", cli.PodPath(p.GetMetadata()), cli.Sentence(env, err))
		}
		warned[p.GetId()] = true
	}
	sample := func(ctx context.Context) ([]*runtimeapi.PodSandboxStats, error) {
		return o.list(ctx, conn, filter, ids)
	}
	cpu := func(s *runtimeapi.PodSandboxStats) *runtimeapi.CpuUsage { return s.GetLinux().GetCpu() }
	return cli.ShowStats(ctx, env, conn, &o.StatsOptions, false, sample, cpu,
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

// oneByOne asks for the stats of each pod where a runtime has failed to list them, as containerd does
// when one pod cannot be measured. That is a row without figures, and a warning. It returns failed if
// there is nothing else for a program to read, or the runtime has no stats of pods at all.
func (o *statspOptions) oneByOne(ctx context.Context, conn *client.Conn, statsFilter *runtimeapi.PodSandboxStatsFilter, ids []string, failed error) ([]*runtimeapi.PodSandboxStats, error) {
	pods, err := (&cli.Filter{ID: statsFilter.GetId(), In: o.Filter.In, Selector: o.Filter.Selector, State: "ready"}).Pods(ctx, conn)
	if err != nil {
		return nil, failed
	}
	var all []*runtimeapi.PodSandboxStats
	measured, reasons := 0, map[*runtimeapi.PodSandbox]error{}
	for _, p := range pods {
		if len(ids) > 0 && !slices.Contains(ids, p.GetId()) {
			continue
		}
		res, err := conn.Runtime.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.GetId()})
		switch {
		case cli.IsGone(err):
			continue
		case err == nil:
			measured++
		default:
			reasons[p] = err
			res = &runtimeapi.PodSandboxStatsResponse{Stats: &runtimeapi.PodSandboxStats{Attributes: &runtimeapi.PodSandboxAttributes{
				Id: p.GetId(), Metadata: p.GetMetadata(), Labels: p.GetLabels(), Annotations: p.GetAnnotations(),
			}}}
		}
		all = append(all, res.GetStats())
	}
	if measured == 0 && (len(o.Targets) > 0 || o.View.Format.ForMachines() || strings.Contains(failed.Error(), "not implemented")) {
		return nil, failed
	}
	for _, p := range pods {
		if err := reasons[p]; err != nil {
			o.unmeasured(p, err)
		}
	}
	return all, nil
}

// podUsages returns the rows of a pod table from two samples.
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
