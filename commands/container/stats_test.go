package container

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
)

func TestContainerUsagesKeepsBadRows(t *testing.T) {
	attributes := func(id string) *runtimeapi.ContainerAttributes {
		return &runtimeapi.ContainerAttributes{Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: id}, Labels: map[string]string{kube.LabelPodName: "p", kube.LabelPodNamespace: "n"}}
	}
	before := []*runtimeapi.ContainerStats{
		{Attributes: attributes("good"), Cpu: cpuUsed(1000, 0)},
		{Attributes: attributes("frozen"), Cpu: cpuUsed(1000, 5)},
	}
	after := []*runtimeapi.ContainerStats{
		{Attributes: attributes("good"), Cpu: cpuUsed(2000, 100), Memory: &runtimeapi.MemoryUsage{
			WorkingSetBytes: &runtimeapi.UInt64Value{Value: 30}, AvailableBytes: &runtimeapi.UInt64Value{Value: 70},
		}},
		{Attributes: attributes("frozen"), Cpu: cpuUsed(1000, 5)},
		{Attributes: attributes("ended")},
		nil,
	}
	usages := containerUsages(before, after, cli.Extras{Names: map[string]cli.Traffic{"n/p": {In: 1, Out: 2}}}, true)
	if len(usages) != 4 {
		t.Fatalf("got %d rows, want 4", len(usages))
	}
	good := usages[3]
	if good.Name != "good" || good.CPUPercent != 10 || good.MemoryLimit != 100 || good.NetworkOut != 2 {
		t.Errorf("got %+v for the good container", good)
	}
	if some := containerUsages(before, after, cli.Extras{}, false); len(some) != 1 || some[0].Name != "good" {
		t.Errorf("without --all: got %+v, want the one that uses something", some)
	}
}

func cpuUsed(at int64, used uint64) *runtimeapi.CpuUsage {
	return &runtimeapi.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: used}}
}
