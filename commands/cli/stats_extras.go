package cli

import (
	"context"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// UnknownAmount is a figure that the runtime does not know.
const UnknownAmount = -1

// Amount returns v, or UnknownAmount for nil.
func Amount(v *runtimeapi.UInt64Value) int64 {
	if v == nil {
		return UnknownAmount
	}
	return int64(v.GetValue())
}

// Traffic is the number of bytes received and sent, or read and written.
type Traffic struct{ In, Out int64 }

// unknown is the Traffic of a container or pod without figures.
var unknown = Traffic{UnknownAmount, UnknownAmount}

// NetworkOf returns the bytes that a pod has received and sent.
func NetworkOf(s *runtimeapi.PodSandboxStats) Traffic {
	i := s.GetLinux().GetNetwork().GetDefaultInterface()
	return Traffic{In: Amount(i.GetRxBytes()), Out: Amount(i.GetTxBytes())}
}

// sum adds two amounts. An unknown amount counts as 0 unless both are unknown.
func sum(a, b int64) int64 {
	if a == UnknownAmount || b == UnknownAmount {
		return max(a, b)
	}
	return a + b
}

// Extras are figures that the stats of containers lack: the network of their pod, and figures that
// only metrics have.
type Extras struct {
	network map[string]Traffic // by the container's id
	Names   map[string]Traffic // by "namespace/name" of the pod
	blocks  map[string]Traffic // by the container's or the pod's id
	pids    map[string]int64   // by the container's id
}

// Names of metrics, as in cAdvisor.
const (
	metricReads     = "container_fs_reads_bytes_total"
	metricWrites    = "container_fs_writes_bytes_total"
	metricProcesses = "container_processes"
)

// AskExtras asks for the extra figures in the background, for at most detailsTimeout, and returns a function that
// waits for the answers. Columns stay empty if the runtime lacks a call.
func AskExtras(ctx context.Context, conn *client.Conn, pods bool) func() Extras {
	e := Extras{network: map[string]Traffic{}, Names: map[string]Traffic{}, blocks: map[string]Traffic{}, pids: map[string]int64{}}
	ctx, cancel := context.WithTimeout(ctx, detailsTimeout)
	var known *runtimeapi.ListMetricDescriptorsResponse
	var metrics *runtimeapi.ListPodSandboxMetricsResponse
	var asked sync.WaitGroup
	asked.Go(func() { known, _ = conn.Runtime.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{}) })
	asked.Go(func() {
		metrics, _ = conn.Runtime.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
	})
	if pods {
		asked.Go(func() {
			res, _ := conn.Runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
			e.addNetworks(res.GetStats())
		})
	}
	return func() Extras {
		asked.Wait()
		cancel()
		has := map[string]bool{}
		for _, d := range known.GetDescriptors() {
			has[d.GetName()] = true
		}
		for _, p := range metrics.GetPodMetrics() {
			e.addMetrics(p, has)
		}
		return e
	}
}

// addMetrics reads the metrics of one pod. A known metric without a value is 0, for example if no disk was read.
func (e Extras) addMetrics(p *runtimeapi.PodSandboxMetrics, known map[string]bool) {
	initial := func(metric string) int64 {
		if known[metric] {
			return 0
		}
		return UnknownAmount
	}
	whole := unknown
	for _, c := range p.GetContainerMetrics() {
		blocks, pids := Traffic{initial(metricReads), initial(metricWrites)}, int64(UnknownAmount)
		for _, m := range c.GetMetrics() {
			switch v := int64(m.GetValue().GetValue()); m.GetName() {
			case metricReads: // one value per device
				blocks.In = sum(blocks.In, v)
			case metricWrites:
				blocks.Out = sum(blocks.Out, v)
			case metricProcesses:
				pids = v
			}
		}
		e.blocks[c.GetContainerId()], e.pids[c.GetContainerId()] = blocks, pids
		whole = Traffic{sum(whole.In, blocks.In), sum(whole.Out, blocks.Out)}
	}
	e.blocks[p.GetPodSandboxId()] = whole
}

// WithNetworks returns e with the network figures of stats.
func (e Extras) WithNetworks(stats []*runtimeapi.PodSandboxStats) Extras {
	e.network, e.Names = map[string]Traffic{}, map[string]Traffic{}
	e.addNetworks(stats)
	return e
}

func (e Extras) addNetworks(stats []*runtimeapi.PodSandboxStats) {
	for _, s := range stats {
		m := s.GetAttributes().GetMetadata()
		e.Names[m.GetNamespace()+"/"+m.GetName()] = NetworkOf(s)
		for _, c := range s.GetLinux().GetContainers() {
			e.network[c.GetAttributes().GetId()] = NetworkOf(s)
		}
	}
}

// fill adds the figures of a container to its row. The pod is found by the kubelet's labels if the
// runtime does not list the containers of pods.
func (e Extras) fill(u *output.Usage) {
	network, ok := e.network[u.ID]
	if !ok {
		network = trafficOf(e.Names, u.Namespace+"/"+u.Pod)
	}
	u.NetworkIn, u.NetworkOut = network.In, network.Out
	e.FillBlocks(u)
	u.Pids = UnknownAmount
	if n, ok := e.pids[u.ID]; ok {
		u.Pids = n
	}
}

// FillBlocks adds the block I/O of a container or a pod to its row.
func (e Extras) FillBlocks(u *output.Usage) {
	blocks := trafficOf(e.blocks, u.ID)
	u.BlockRead, u.BlockWrite = blocks.In, blocks.Out
}

func trafficOf(known map[string]Traffic, key string) Traffic {
	if t, ok := known[key]; ok {
		return t
	}
	return unknown
}
