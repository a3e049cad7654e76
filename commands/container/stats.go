package container

import (
	"context"
	"io"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

type statsOptions struct {
	cli.StatsOptions
	all bool
	pod string
}

func NewStats(in *cli.Invocation) *cli.Verb {
	o := &statsOptions{}
	return &cli.Verb{
		Usage:     "Show the resource usage of containers",
		ArgsUsage: "[CONTAINER...]",
		Args:      cli.CompleteContainers(),
		Description: cli.WithExamples("Shows CPU (in per cent of one core between two samples), memory, disk, network of the pod, block I/O and processes of running containers; "+
			"- means that the runtime does not report the value. JSON and YAML are one unchanged sample of the runtime.",
			"crishim stats", "crishim stats web mypod", "crishim stats --pod web -o wide", "crishim stats -o json"),
		Flags: append(o.Flags(output.StatsColumns),
			cli.BoolFlag(&o.all, "all", "Include containers that use nothing, such as exited ones", "a"),
			cli.StringFlag(&o.pod, "pod", "Filter by `POD`: name, namespace/name or ID", "p"),
		),
		Check: o.Check,
		RunOn: o.run,
	}
}

func (o *statsOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	o = new(*o) // a copy, because several nodes run at once and share o
	filter := &runtimeapi.ContainerStatsFilter{Id: o.Filter.ID, LabelSelector: o.Filter.Selector.Equalities()}
	ids, err := o.Chosen(printer, func(ref string) (string, error) {
		c, err := conn.FindContainer(ctx, o.Filter.In.Query(ref, client.RunningAttempt))
		return c.GetId(), err
	})
	if err != nil {
		return err
	}
	if len(ids) == 1 {
		filter.Id = ids[0]
	}
	if o.pod != "" {
		pod, err := conn.FindPod(ctx, o.Filter.In.Query(o.pod, client.NewestAttempt))
		if err != nil {
			return err
		}
		filter.PodSandboxId = pod.GetId()
	}
	sample := func(ctx context.Context) ([]*runtimeapi.ContainerStats, error) { return o.list(ctx, conn, filter, ids) }
	return cli.ShowStats(ctx, printer, conn, &o.StatsOptions, true, sample, (*runtimeapi.ContainerStats).GetCpu,
		func(w io.Writer, before, after []*runtimeapi.ContainerStats, more cli.Extras) error {
			usages := containerUsages(before, after, more, o.all || o.OneSample())
			if err := o.nameUsages(ctx, conn, usages); err != nil {
				return err
			}
			return output.ContainerStats(w, &runtimeapi.ListContainerStatsResponse{Stats: after}, usages, o.View.Options)
		})
}

// list filters the stats again, because not every runtime applies the filter.
func (o *statsOptions) list(ctx context.Context, conn *client.Conn, filter *runtimeapi.ContainerStatsFilter, ids []string) ([]*runtimeapi.ContainerStats, error) {
	res, err := conn.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	inPod := map[string]bool{} // ids of the containers in the pod or namespace; CRI's stats contain neither
	if pod := filter.GetPodSandboxId(); pod != "" {
		containers, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: pod}})
		if err != nil {
			return nil, err
		}
		for _, c := range containers.GetContainers() {
			inPod[c.GetId()] = c.GetPodSandboxId() == pod
		}
	} else if o.Filter.In.Namespace != "" {
		containers, err := (&cli.Filter{In: o.Filter.In}).Containers(ctx, conn)
		if err != nil {
			return nil, err
		}
		for _, c := range containers {
			inPod[c.GetId()] = true
		}
	}
	return slices.DeleteFunc(res.GetStats(), func(s *runtimeapi.ContainerStats) bool {
		a := s.GetAttributes()
		return !strings.HasPrefix(a.GetId(), filter.GetId()) || len(ids) > 0 && !slices.Contains(ids, a.GetId()) || (filter.GetPodSandboxId() != "" || o.Filter.In.Namespace != "") && !inPod[a.GetId()] || !o.Filter.Selector.Matches(a.GetLabels())
	}), nil
}

// containerUsages returns the rows of two samples. A container without a first sample has no CPU rate yet. Unless all
// is set, containers without CPU and memory usage are omitted.
func containerUsages(before, after []*runtimeapi.ContainerStats, more cli.Extras, all bool) []output.Usage {
	earlier := map[string]*runtimeapi.CpuUsage{}
	for _, s := range before {
		earlier[s.GetAttributes().GetId()] = s.GetCpu()
	}
	var usages []output.Usage
	for _, s := range after {
		u := cli.ContainerUsage(earlier[s.GetAttributes().GetId()], s, more)
		if all || u.CPUPercent > 0 || u.Memory > 0 {
			usages = append(usages, u)
		}
	}
	cli.SortUsages(usages)
	return usages
}

// nameUsages adds the pod to the stats of each container without a kubelet's labels, if the view shows pods.
func (o *statsOptions) nameUsages(ctx context.Context, conn *client.Conn, usages []output.Usage) error {
	v := o.View
	isPod := func(column string) bool { return strings.EqualFold(strings.Trim(column, " -"), "pod") }
	shown := len(v.Columns) == 0 && !v.Crictl && !v.Format.ForMachines() || v.Format.Kind == output.Name || v.Format.Kind == output.Wide || isPod(v.Sort) || slices.ContainsFunc(v.Columns, isPod)
	unnamed := func(u output.Usage) bool { return u.Pod == "" }
	if !shown || !slices.ContainsFunc(usages, unnamed) {
		return nil
	}
	list, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	pods, err := cli.PodNames(ctx, conn)
	if err != nil {
		return err
	}
	podOf := map[string]*runtimeapi.PodSandboxMetadata{}
	for _, c := range list.GetContainers() {
		podOf[c.GetId()] = pods[c.GetPodSandboxId()]
	}
	for i, u := range usages {
		if unnamed(u) {
			usages[i].Pod, usages[i].Namespace = podOf[u.ID].GetName(), podOf[u.ID].GetNamespace()
		}
	}
	cli.SortUsages(usages)
	return nil
}
