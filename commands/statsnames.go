package commands

import (
	"context"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// nameUsages says which pods containers are in that nobody labelled with it,
// where that is to be shown.
func (q usageQuery) nameUsages(ctx context.Context, conn *client.Conn, usages []output.Usage) error {
	o := q.output
	isPod := func(column string) bool { return strings.EqualFold(strings.Trim(column, " -"), "pod") }
	shown := len(o.Columns) == 0 && !o.Crictl && !o.Format.ForMachines() || o.Format.Kind == output.Name || o.Format.Kind == output.Wide || isPod(o.Sort) || slices.ContainsFunc(o.Columns, isPod)
	unnamed := func(u output.Usage) bool { return u.Pod == "" }
	if !shown || !slices.ContainsFunc(usages, unnamed) {
		return nil
	}
	list, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	pods, err := podNames(ctx, conn)
	if err != nil {
		return err
	}
	of := map[string]*runtimeapi.PodSandboxMetadata{}
	for _, c := range list.GetContainers() {
		of[c.GetId()] = pods[c.GetPodSandboxId()]
	}
	for i, u := range usages {
		if unnamed(u) {
			usages[i].Pod, usages[i].Namespace = of[u.ID].GetName(), of[u.ID].GetNamespace()
		}
	}
	sortUsages(usages)
	return nil
}
