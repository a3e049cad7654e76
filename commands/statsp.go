package commands

import (
	"bytes"
	"context"
	"strings"

	"github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newStatsp shows what whole pods use of the node.
func newStatsp(env *Env) *cli.Command {
	return &cli.Command{
		Name:        "statsp",
		Usage:       "show what pods use",
		ArgsUsage:   "[POD]",
		Description: describe("Like stats, for pods: all containers of a pod together, and its network.", "crishim statsp", "crishim statsp -o json"),
		Flags:       statsFlags(output.PodStatsColumns),
		Action:      action(env, statsOptionsOf(output.PodStatsColumns), runStatsp),
	}
}

func runStatsp(ctx context.Context, env *Env, q usageQuery) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	filter := &runtimeapi.PodSandboxStatsFilter{Id: q.id, LabelSelector: bothLabels(q.labels, q.selector)}
	if q.target != "" {
		pod, err := conn.Pod(ctx, q.target, client.Running)
		if err != nil {
			return err
		}
		filter.Id = pod.GetId()
	}
	warned := map[string]bool{}
	q.unmeasured = func(p *runtimeapi.PodSandbox, err error) {
		if !warned[p.GetId()] { // not on each page again
			env.warn("pod %s cannot be measured: %s", podPath(p.GetMetadata()), sentence(env, err))
		}
		warned[p.GetId()] = true
	}
	display := &screen{out: env.Out, terminal: env.OutTerminal && !q.output.Format.ForMachines()}
	return refresh(ctx, q.watch, q.pauseBetweenPages(), func(ctx context.Context) error {
		var page bytes.Buffer
		q.output.Now = env.Now()
		if err := q.podPage(ctx, conn, filter, &page); err != nil {
			return err
		}
		return display.show(page.Bytes())
	})
}

// podPage takes the samples for one page and writes it.
func (q usageQuery) podPage(ctx context.Context, conn *client.Conn, filter *runtimeapi.PodSandboxStatsFilter, page *bytes.Buffer) error {
	before, err := q.listPodStats(ctx, conn, filter)
	if err != nil {
		return err
	}
	if q.output.Format.ForMachines() || q.output.Quiet {
		return output.PodStats(page, before, podUsages(before, before, beside{}), q.output)
	}
	more := q.besides(ctx, conn, false)
	after := before
	if q.watch || !podsRated(before) {
		if err := pause(ctx, q.interval); err != nil {
			return err
		}
		if after, err = q.listPodStats(ctx, conn, filter); err != nil {
			return err
		}
	}
	return output.PodStats(page, after, podUsages(before, after, more()), q.output)
}

func podsRated(r *runtimeapi.ListPodSandboxStatsResponse) bool {
	for _, s := range r.GetStats() {
		if s.GetLinux().GetCpu() != nil && s.GetLinux().GetCpu().GetUsageNanoCores() == nil {
			return false
		}
	}
	return true
}

func (q usageQuery) listPodStats(ctx context.Context, conn *client.Conn, filter *runtimeapi.PodSandboxStatsFilter) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	res, err := conn.Runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{Filter: filter})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unknown, codes.Internal, codes.NotFound:
		if res, err = q.podStatsOneByOne(ctx, conn, filter, err); err != nil {
			return nil, err
		}
	default:
		return nil, err
	}
	kept := &runtimeapi.ListPodSandboxStatsResponse{}
	for _, s := range res.GetStats() {
		if strings.HasPrefix(s.GetAttributes().GetId(), filter.GetId()) && q.wants(s.GetAttributes().GetLabels()) {
			kept.Stats = append(kept.Stats, s)
		}
	}
	return kept, nil
}

// podStatsOneByOne asks for each pod by itself where a runtime has failed for
// all of them, as containerd does when it can measure one of them only. What
// cannot be measured is a row without figures, and a warning; failed is what to say
// where that would be all that a program gets, or the runtime cannot measure pods at all.
func (q usageQuery) podStatsOneByOne(ctx context.Context, conn *client.Conn, filter *runtimeapi.PodSandboxStatsFilter, failed error) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	ready := runtimeapi.PodSandboxState_SANDBOX_READY
	pods, err := podFilter{id: filter.GetId(), labels: q.labels, selector: q.selector, state: &ready, newest: -1}.list(ctx, conn)
	if err != nil {
		return nil, failed
	}
	all, measured := &runtimeapi.ListPodSandboxStatsResponse{}, 0
	reasons := map[*runtimeapi.PodSandbox]error{}
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
		all.Stats = append(all.Stats, res.GetStats())
	}
	if measured == 0 && (q.target != "" || q.output.Format.ForMachines() || strings.Contains(failed.Error(), "not implemented")) {
		return nil, failed
	}
	for _, p := range pods {
		if err := reasons[p]; err != nil {
			q.unmeasured(p, err)
		}
	}
	return all, nil
}

// podUsages computes the lines of a pod table from two samples.
func podUsages(before, after *runtimeapi.ListPodSandboxStatsResponse, more beside) []output.Usage {
	earlier := map[string]*runtimeapi.CpuUsage{}
	for _, s := range before.GetStats() {
		earlier[s.GetAttributes().GetId()] = s.GetLinux().GetCpu()
	}
	var usages []output.Usage
	for _, s := range after.GetStats() {
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
