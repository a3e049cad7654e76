package cli

import (
	"context"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// Traffic is what has been received and sent, or read and written, in bytes.
type Traffic struct{ In, Out int64 }

func unknownTraffic() Traffic { return Traffic{UnknownAmount, UnknownAmount} }

// NetworkOf returns what a pod has received and sent.
func NetworkOf(s *runtimeapi.PodSandboxStats) Traffic {
	i := s.GetLinux().GetNetwork().GetDefaultInterface()
	return Traffic{In: Amount(i.GetRxBytes()), Out: Amount(i.GetTxBytes())}
}

// sum adds what is known of both.
func sum(a, b int64) int64 {
	switch {
	case a == UnknownAmount:
		return b
	case b == UnknownAmount:
		return a
	}
	return a + b
}

// Extras are what the stats of containers do not say: their pod's network, and
// what runtimes tell in their metrics only.
type Extras struct {
	network map[string]Traffic // by the container's id
	Names   map[string]Traffic // by "namespace/name" of the pod
	blocks  map[string]Traffic // by the container's or the pod's id
	pids    map[string]int64   // by the container's id
}

// Metrics that figures of the tables come from, by their names in cAdvisor.
const (
	metricReads     = "container_fs_reads_bytes_total"
	metricWrites    = "container_fs_writes_bytes_total"
	metricProcesses = "container_processes"
)

// extrasTimeout bounds the wait for figures that a table can do without.
const extrasTimeout = 3 * time.Second

// AskExtras asks for them in the background and returns a function that waits for the
// answers. A runtime that lacks one of them leaves columns empty; that is no error.
func AskExtras(ctx context.Context, conn *client.Conn, pods bool) func() Extras {
	e := Extras{network: map[string]Traffic{}, Names: map[string]Traffic{}, blocks: map[string]Traffic{}, pids: map[string]int64{}}
	ctx, cancel := context.WithTimeout(ctx, extrasTimeout)
	var metrics []*runtimeapi.PodSandboxMetrics
	has := map[string]bool{}
	var asked sync.WaitGroup
	asked.Go(func() {
		if res, err := conn.Runtime.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{}); err == nil {
			for _, d := range res.GetDescriptors() {
				has[d.GetName()] = true
			}
		}
	})
	asked.Go(func() {
		if res, err := conn.Runtime.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{}); err == nil {
			metrics = res.GetPodMetrics()
		}
	})
	if pods {
		asked.Go(func() {
			if res, err := conn.Runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{}); err == nil {
				e.addNetworks(res.GetStats())
			}
		})
	}
	return func() Extras {
		asked.Wait()
		cancel()
		for _, p := range metrics {
			e.addMetrics(p, has)
		}
		return e
	}
}

// addMetrics reads the metrics of one pod. One that the runtime knows and does not
// give is 0: nothing has been read from any disk, for example.
func (e Extras) addMetrics(p *runtimeapi.PodSandboxMetrics, known map[string]bool) {
	initial := func(metric string) int64 {
		if known[metric] {
			return 0
		}
		return UnknownAmount
	}
	whole := unknownTraffic()
	for _, c := range p.GetContainerMetrics() {
		blocks, pids := Traffic{initial(metricReads), initial(metricWrites)}, int64(UnknownAmount)
		for _, m := range c.GetMetrics() {
			switch v := int64(m.GetValue().GetValue()); m.GetName() {
			case metricReads: // one for each device
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

// WithNetworks returns the same figures with other networks of pods.
func (e Extras) WithNetworks(stats []*runtimeapi.PodSandboxStats) Extras {
	e.network, e.Names = map[string]Traffic{}, map[string]Traffic{}
	e.addNetworks(stats)
	return e
}

// addNetworks notes the network of each pod for the containers in it.
func (e Extras) addNetworks(stats []*runtimeapi.PodSandboxStats) {
	for _, s := range stats {
		m := s.GetAttributes().GetMetadata()
		e.Names[m.GetNamespace()+"/"+m.GetName()] = NetworkOf(s)
		for _, c := range s.GetLinux().GetContainers() {
			e.network[c.GetAttributes().GetId()] = NetworkOf(s)
		}
	}
}

// Fill adds the figures of one container to its row. Runtimes that do not say which
// containers a pod has are matched by the labels that a kubelet sets.
func (e Extras) Fill(u *output.Usage) {
	network, ok := e.network[u.ID]
	if !ok {
		network, ok = e.Names[u.Namespace+"/"+u.Pod]
	}
	if !ok {
		network = unknownTraffic()
	}
	u.NetworkIn, u.NetworkOut = network.In, network.Out
	e.FillBlocks(u)
	u.Pids = UnknownAmount
	if n, ok := e.pids[u.ID]; ok {
		u.Pids = n
	}
}

// FillBlocks adds what a container or a pod has read from disks and written.
func (e Extras) FillBlocks(u *output.Usage) {
	blocks, ok := e.blocks[u.ID]
	if !ok {
		blocks = unknownTraffic()
	}
	u.BlockRead, u.BlockWrite = blocks.In, blocks.Out
}
