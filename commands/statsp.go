package commands

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

type statspOptions struct {
	usageOptions
	unmeasured func(*runtimeapi.PodSandbox, error) // told of each pod that has no figures
}

// newStatsp shows what whole pods use of the node.
func newStatsp(env *Env) *cli.Command {
	o := &statspOptions{}
	return &cli.Command{
		Name:        "statsp",
		Usage:       "show what pods use",
		ArgsUsage:   "[POD]",
		Description: describe("Like stats, for pods: all containers of a pod together, and its network.", "crishim statsp", "crishim statsp -o json"),
		Flags:       o.flags(output.PodStatsColumns),
		Action:      env.connected(o.check, o.run),
	}
}

func (o *statspOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	filter := &runtimeapi.PodSandboxStatsFilter{Id: o.filter.id, LabelSelector: o.filter.selector.Equalities()}
	if o.target != "" {
		pod, err := conn.Pod(ctx, o.target, client.Running)
		if err != nil {
			return err
		}
		filter.Id = pod.GetId()
	}
	warned := map[string]bool{}
	o.unmeasured = func(p *runtimeapi.PodSandbox, err error) {
		if !warned[p.GetId()] { // not on each page again
			env.warn("pod %s cannot be measured: %s", podPath(p.GetMetadata()), sentence(env, err))
		}
		warned[p.GetId()] = true
	}
	sample := func(ctx context.Context) ([]*runtimeapi.PodSandboxStats, error) { return o.list(ctx, conn, filter) }
	cpu := func(s *runtimeapi.PodSandboxStats) *runtimeapi.CpuUsage { return s.GetLinux().GetCpu() }
	return showUsage(ctx, env, conn, &o.usageOptions, false, sample, cpu,
		func(w io.Writer, before, after []*runtimeapi.PodSandboxStats, more extras) error {
			return output.PodStats(w, &runtimeapi.ListPodSandboxStatsResponse{Stats: after}, podUsages(before, after, more), o.view.Options)
		})
}

func (o *statspOptions) list(ctx context.Context, conn *client.Conn, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	res, err := conn.Runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{Filter: filter})
	all := res.GetStats()
	switch status.Code(err) {
	case codes.Unknown, codes.Internal, codes.NotFound:
		all, err = o.oneByOne(ctx, conn, filter, err)
	}
	return slices.DeleteFunc(all, func(s *runtimeapi.PodSandboxStats) bool {
		a := s.GetAttributes()
		return !strings.HasPrefix(a.GetId(), filter.GetId()) || !o.filter.selector.Matches(a.GetLabels())
	}), err
}

// oneByOne asks for each pod by itself where a runtime has failed for
// all of them, as containerd does when it can measure one of them only. What
// cannot be measured is a row without figures, and a warning; failed is what to say
// where that would be all that a program gets, or the runtime cannot measure pods at all.
func (o *statspOptions) oneByOne(ctx context.Context, conn *client.Conn, statsFilter *runtimeapi.PodSandboxStatsFilter, failed error) ([]*runtimeapi.PodSandboxStats, error) {
	pods, err := (&filter{id: statsFilter.GetId(), selector: o.filter.selector, state: "ready"}).pods(ctx, conn)
	if err != nil {
		return nil, failed
	}
	var all []*runtimeapi.PodSandboxStats
	measured, reasons := 0, map[*runtimeapi.PodSandbox]error{}
	for _, p := range pods {
		res, err := conn.Runtime.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.GetId()})
		switch {
		case isGone(err):
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
	if measured == 0 && (o.target != "" || o.view.Format.ForMachines() || strings.Contains(failed.Error(), "not implemented")) {
		return nil, failed
	}
	for _, p := range pods {
		if err := reasons[p]; err != nil {
			o.unmeasured(p, err)
		}
	}
	return all, nil
}

// podUsages computes the lines of a pod table from two samples.
func podUsages(before, after []*runtimeapi.PodSandboxStats, more extras) []output.Usage {
	earlier := map[string]*runtimeapi.CpuUsage{}
	for _, s := range before {
		earlier[s.GetAttributes().GetId()] = s.GetLinux().GetCpu()
	}
	var usages []output.Usage
	for _, s := range after {
		a, l := s.GetAttributes(), s.GetLinux()
		network := networkOf(s)
		u := output.Usage{
			ID: a.GetId(), Name: a.GetMetadata().GetName(), Pod: a.GetMetadata().GetName(), Namespace: a.GetMetadata().GetNamespace(),
			CPUPercent: cpuPercent(earlier[a.GetId()], l.GetCpu()),
			Memory:     amount(l.GetMemory().GetWorkingSetBytes()), MemoryLimit: memoryLimit(l.GetMemory()),
			Disk: unknownAmount, Inodes: unknownAmount, Swap: unknownAmount,
			NetworkIn: network.in, NetworkOut: network.out,
			Pids: amount(l.GetProcess().GetProcessCount()),
		}
		more.fillBlocks(&u)
		usages = append(usages, u)
	}
	sortUsages(usages)
	return usages
}
