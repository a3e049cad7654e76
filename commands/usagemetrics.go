package commands

import (
	"context"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// traffic is what has been received and sent, or read and written, in bytes.
type traffic struct{ in, out int64 }

func unknownTraffic() traffic { return traffic{unknownAmount, unknownAmount} }

// add sums what is known of both.
func (t traffic) add(o traffic) traffic {
	return traffic{sum(t.in, o.in), sum(t.out, o.out)}
}

func sum(a, b int64) int64 {
	switch {
	case a == unknownAmount:
		return b
	case b == unknownAmount:
		return a
	}
	return a + b
}

// beside is what the stats of containers do not say: their pod's network, and
// what runtimes tell in their metrics only.
type beside struct {
	network map[string]traffic // by the container's id
	names   map[string]traffic // by "namespace/name" of the pod
	blocks  map[string]traffic // by the container's or the pod's id
	pids    map[string]int64   // by the container's id
}

// Metrics that figures of the tables come from, by their names in cAdvisor.
const (
	metricReads     = "container_fs_reads_bytes_total"
	metricWrites    = "container_fs_writes_bytes_total"
	metricProcesses = "container_processes"
)

// besidesTime bounds the wait for figures that a table can do without.
const besidesTime = 3 * time.Second

// besides asks for it in the background and gives a function that waits for the
// answers. A runtime that lacks one of them leaves columns empty; that is no error.
func besides(ctx context.Context, conn *client.Conn, pods bool) func() beside {
	b := beside{network: map[string]traffic{}, names: map[string]traffic{}, blocks: map[string]traffic{}, pids: map[string]int64{}}
	ctx, cancel := context.WithTimeout(ctx, besidesTime)
	var described, measured sync.WaitGroup
	var has map[string]bool
	described.Go(func() { has = metricNames(ctx, conn) })
	measured.Go(func() {
		res, err := conn.Runtime.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
		if err != nil {
			return
		}
		described.Wait()
		for _, p := range res.GetPodMetrics() {
			b.measure(p, has)
		}
	})
	if pods {
		measured.Go(func() {
			if res, err := conn.Runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{}); err == nil {
				b.listen(res)
			}
		})
	}
	return func() beside {
		described.Wait()
		measured.Wait()
		cancel()
		return b
	}
}

// metricNames are those that the runtime knows. One that it knows and does not
// give is 0: nothing has been read from any disk, for example.
func metricNames(ctx context.Context, conn *client.Conn) map[string]bool {
	res, err := conn.Runtime.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
	if err != nil {
		return nil
	}
	names := map[string]bool{}
	for _, d := range res.GetDescriptors() {
		names[d.GetName()] = true
	}
	return names
}

// measure reads the metrics of one pod.
func (b beside) measure(p *runtimeapi.PodSandboxMetrics, has map[string]bool) {
	whole := unknownTraffic()
	for _, c := range p.GetContainerMetrics() {
		blocks, pids := traffic{initial(has[metricReads]), initial(has[metricWrites])}, int64(unknownAmount)
		for _, m := range c.GetMetrics() {
			switch v := int64(m.GetValue().GetValue()); m.GetName() {
			case metricReads: // one for each device
				blocks.in = sum(blocks.in, v)
			case metricWrites:
				blocks.out = sum(blocks.out, v)
			case metricProcesses:
				pids = v
			}
		}
		b.blocks[c.GetContainerId()], b.pids[c.GetContainerId()] = blocks, pids
		whole = whole.add(blocks)
	}
	b.blocks[p.GetPodSandboxId()] = whole
}

// initial is what a counter begins with.
func initial(known bool) int64 {
	if known {
		return 0
	}
	return unknownAmount
}

// listen notes the network of each pod for the containers in it.
func (b beside) listen(r *runtimeapi.ListPodSandboxStatsResponse) {
	for _, s := range r.GetStats() {
		m := s.GetAttributes().GetMetadata()
		b.names[m.GetNamespace()+"/"+m.GetName()] = networkOf(s)
		for _, c := range s.GetLinux().GetContainers() {
			b.network[c.GetAttributes().GetId()] = networkOf(s)
		}
	}
}

// of gives the pod's network. Runtimes that do not say which containers a pod has
// are found by the labels that a kubelet sets.
func (b beside) of(u output.Usage) traffic {
	if t, ok := b.network[u.ID]; ok {
		return t
	}
	if t, ok := b.names[u.Namespace+"/"+u.Pod]; ok {
		return t
	}
	return unknownTraffic()
}

// fill adds the figures of one container to its row.
func (b beside) fill(u *output.Usage) {
	network := b.of(*u)
	u.NetworkIn, u.NetworkOut = network.in, network.out
	b.fillBlocks(u)
	u.Pids = unknownAmount
	if n, ok := b.pids[u.ID]; ok {
		u.Pids = n
	}
}

func (b beside) fillBlocks(u *output.Usage) {
	blocks, ok := b.blocks[u.ID]
	if !ok {
		blocks = unknownTraffic()
	}
	u.BlockRead, u.BlockWrite = blocks.in, blocks.out
}
