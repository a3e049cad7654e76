package cli

import (
	"context"
	"errors"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/output"
)

func cpuAt(at int64, used uint64) *runtimeapi.CpuUsage {
	return &runtimeapi.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: used}}
}

func TestCPUPercent(t *testing.T) {
	rate := cpuAt(5, 5)
	rate.UsageNanoCores = &runtimeapi.UInt64Value{Value: 500_000_000}
	cases := map[string]struct {
		before, after *runtimeapi.CpuUsage
		want          float64
	}{
		"nothing known":                     {nil, nil, -1},
		"first sample":                      {nil, cpuAt(1, 1), -1},
		"half a core":                       {cpuAt(1000, 0), cpuAt(2000, 500), 50},
		"two cores":                         {cpuAt(1000, 100), cpuAt(2000, 2100), 200},
		"clock stood still":                 {cpuAt(5, 1), cpuAt(5, 5), -1},
		"clock stood still, but rate known": {cpuAt(5, 1), rate, 50},
		"counter fell after a restart":      {cpuAt(1, 900), cpuAt(2, 5), -1},
		"rate without an earlier sample":    {nil, rate, 50},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := CPUPercent(c.before, c.after); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestRefreshEndsWellWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pages := 0
	err := Refresh(ctx, true, 0, func(context.Context) error {
		if pages++; pages == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, ErrFollowed) || pages != 3 {
		t.Errorf("got %v after %d pages, want errFollowed after 3", err, pages)
	}
	broken := errors.New("broken")
	if err := Refresh(t.Context(), true, 0, func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want the page's error", err)
	}
}

func TestFiguresBesideTheStats(t *testing.T) {
	metric := func(name string, v uint64) *runtimeapi.Metric {
		return &runtimeapi.Metric{Name: name, Value: &runtimeapi.UInt64Value{Value: v}}
	}
	pod := &runtimeapi.PodSandboxMetrics{PodSandboxId: "pod", ContainerMetrics: []*runtimeapi.ContainerMetrics{
		{ContainerId: "busy", Metrics: []*runtimeapi.Metric{metric(metricReads, 1), metric(metricReads, 2), metric(metricWrites, 4), metric(metricProcesses, 5)}},
		{ContainerId: "idle", Metrics: []*runtimeapi.Metric{metric(metricProcesses, 1)}},
	}}
	for name, tc := range map[string]struct {
		has             map[string]bool
		busy, idle, all Traffic
	}{
		"runtime that tells of disks": {map[string]bool{metricReads: true, metricWrites: true}, Traffic{3, 4}, Traffic{0, 0}, Traffic{3, 4}},
		"descriptors are unknown":     {nil, Traffic{3, 4}, unknown, Traffic{3, 4}},
	} {
		b := Extras{blocks: map[string]Traffic{}, pids: map[string]int64{}}
		b.addMetrics(pod, tc.has)
		for id, want := range map[string]Traffic{"busy": tc.busy, "idle": tc.idle, "pod": tc.all, "other": unknown} {
			u := output.Usage{ID: id}
			b.FillBlocks(&u)
			if got := (Traffic{u.BlockRead, u.BlockWrite}); got != want {
				t.Errorf("%s: %s: got %v, want %v", name, id, got, want)
			}
		}
		u := output.Usage{ID: "busy"}
		if b.fill(&u); u.Pids != 5 || u.NetworkIn != UnknownAmount {
			t.Errorf("%s: got %+v", name, u)
		}
	}

	b := Extras{Names: map[string]Traffic{}, network: map[string]Traffic{}}
	bytes := func(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }
	b.addNetworks([]*runtimeapi.PodSandboxStats{{
		Attributes: &runtimeapi.PodSandboxAttributes{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n"}},
		Linux: &runtimeapi.LinuxPodSandboxStats{
			Network:    &runtimeapi.NetworkUsage{DefaultInterface: &runtimeapi.NetworkInterfaceUsage{RxBytes: bytes(1), TxBytes: bytes(2)}},
			Containers: []*runtimeapi.ContainerStats{{Attributes: &runtimeapi.ContainerAttributes{Id: "c"}}},
		},
	}})
	network := func(u output.Usage) Traffic {
		b.fill(&u)
		return Traffic{u.NetworkIn, u.NetworkOut}
	}
	for _, u := range []output.Usage{{ID: "c"}, {ID: "x", Pod: "p", Namespace: "n"}} {
		if got := network(u); got != (Traffic{1, 2}) {
			t.Errorf("%+v: got %v", u, got)
		}
	}
	if got := network(output.Usage{ID: "x", Pod: "q", Namespace: "n"}); got != unknown {
		t.Errorf("a pod without stats: got %v", got)
	}
}
