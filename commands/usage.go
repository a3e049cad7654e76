package commands

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// usageOptions are whose stats to show and how often.
type usageOptions struct {
	target  string
	filter  filter
	seconds int
	watch   bool
	view    view
}

// flags are those of both stats verbs.
func (o *usageOptions) flags(columns output.Columns) []cli.Flag {
	o.seconds = 1
	return append(o.view.listFlags(columns),
		stringFlag(&o.filter.id, "id", "only the one whose id begins with `ID`"),
		o.filter.labelFlag("only those"),
		selectorFlag(&o.filter.selector),
		intFlag(&o.seconds, "seconds", "`SECONDS` between two samples", "s"),
		boolFlag(&o.watch, "watch", "refresh until interrupted", "w"),
	)
}

func (o *usageOptions) check(env *Env, c *cli.Context) error {
	o.target = c.Args().First()
	if o.seconds < 1 {
		return invalid("seconds", o.seconds, "must be at least 1")
	}
	o.view.Crictl = env.compat
	return cmp.Or(argCount(c, 0, 1), o.filter.check(false), o.view.check(env))
}

// oneSample reports whether what is shown needs no second one.
func (o *usageOptions) oneSample() bool { return o.view.Format.ForMachines() || o.view.Quiet }

// showUsage takes samples, two for a page of a table, and shows them, once or again and
// again.
func showUsage[S any](ctx context.Context, env *Env, conn *client.Conn, o *usageOptions, pods bool,
	sample func(context.Context) ([]S, error), cpu func(S) *runtimeapi.CpuUsage, show func(w io.Writer, before, after []S, more extras) error,
) error {
	interval := time.Duration(o.seconds) * time.Second
	display := &screen{out: env.Out, terminal: env.OutTerminal && !o.view.Format.ForMachines()}
	between := time.Duration(0) // a page of two samples takes that long anyway
	if o.oneSample() {
		between = interval
	}
	// A rate that the runtime itself has measured makes one sample enough.
	unrated := func(s S) bool { return cpu(s) != nil && cpu(s).GetUsageNanoCores() == nil }
	return refresh(ctx, o.watch, between, func(ctx context.Context) error {
		o.view.Now = env.Now()
		before, err := sample(ctx)
		if err != nil {
			return err
		}
		after, more := before, extras{}
		if !o.oneSample() {
			// crictl's tables have no extra figures.
			v := o.view
			asked := func() extras { return extras{} }
			if !v.Crictl || v.Format.Kind == output.Wide || len(v.Columns) > 0 || v.Sort != "" {
				asked = askExtras(ctx, conn, pods) // while the second sample is waited for
			}
			if o.watch || slices.ContainsFunc(before, unrated) {
				if err := pause(ctx, interval); err != nil {
					return err
				}
				if after, err = sample(ctx); err != nil {
					return err
				}
			}
			more = asked()
		}
		var page bytes.Buffer
		if err := show(&page, before, after, more); err != nil {
			return err
		}
		return display.show(page.Bytes())
	})
}

// unknownAmount is a figure that the runtime did not give.
const unknownAmount = -1

// nanosPerSecond is also the nanoseconds of CPU time in a second of one core.
const nanosPerSecond = 1e9

// amount is v, or unknownAmount.
func amount(v *runtimeapi.UInt64Value) int64 {
	if v == nil {
		return unknownAmount
	}
	return int64(v.GetValue())
}

func sortUsages(usages []output.Usage) {
	slices.SortFunc(usages, func(a, b output.Usage) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}

// memoryLimit follows from the CRI's "available = limit - working set"; 0 is
// no limit.
func memoryLimit(m *runtimeapi.MemoryUsage) int64 {
	if m.GetAvailableBytes() == nil || m.GetAvailableBytes().GetValue() == 0 {
		return 0
	}
	return int64(m.GetAvailableBytes().GetValue() + m.GetWorkingSetBytes().GetValue())
}

// cpuPercent is the CPU time per time between two samples, in per cent of one
// core; where the clock of the samples did not move it is the runtime's own
// rate, else unknown.
func cpuPercent(before, after *runtimeapi.CpuUsage) float64 {
	if after == nil {
		return unknownAmount
	}
	elapsed := after.GetTimestamp() - before.GetTimestamp()
	used, earlier := after.GetUsageCoreNanoSeconds(), before.GetUsageCoreNanoSeconds()
	if before != nil && elapsed > 0 && used != nil && earlier != nil && used.GetValue() >= earlier.GetValue() {
		return 100 * float64(used.GetValue()-earlier.GetValue()) / float64(elapsed)
	}
	if rate := after.GetUsageNanoCores(); rate != nil {
		return 100 * float64(rate.GetValue()) / nanosPerSecond
	}
	return unknownAmount
}

// traffic is what has been received and sent, or read and written, in bytes.
type traffic struct{ in, out int64 }

func unknownTraffic() traffic { return traffic{unknownAmount, unknownAmount} }

func networkOf(s *runtimeapi.PodSandboxStats) traffic {
	i := s.GetLinux().GetNetwork().GetDefaultInterface()
	return traffic{in: amount(i.GetRxBytes()), out: amount(i.GetTxBytes())}
}

// sum adds what is known of both.
func sum(a, b int64) int64 {
	switch {
	case a == unknownAmount:
		return b
	case b == unknownAmount:
		return a
	}
	return a + b
}

// extras are what the stats of containers do not say: their pod's network, and
// what runtimes tell in their metrics only.
type extras struct {
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

// extrasTimeout bounds the wait for figures that a table can do without.
const extrasTimeout = 3 * time.Second

// askExtras asks for them in the background and returns a function that waits for the
// answers. A runtime that lacks one of them leaves columns empty; that is no error.
func askExtras(ctx context.Context, conn *client.Conn, pods bool) func() extras {
	e := extras{network: map[string]traffic{}, names: map[string]traffic{}, blocks: map[string]traffic{}, pids: map[string]int64{}}
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
	return func() extras {
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
func (e extras) addMetrics(p *runtimeapi.PodSandboxMetrics, known map[string]bool) {
	initial := func(metric string) int64 {
		if known[metric] {
			return 0
		}
		return unknownAmount
	}
	whole := unknownTraffic()
	for _, c := range p.GetContainerMetrics() {
		blocks, pids := traffic{initial(metricReads), initial(metricWrites)}, int64(unknownAmount)
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
		e.blocks[c.GetContainerId()], e.pids[c.GetContainerId()] = blocks, pids
		whole = traffic{sum(whole.in, blocks.in), sum(whole.out, blocks.out)}
	}
	e.blocks[p.GetPodSandboxId()] = whole
}

// addNetworks notes the network of each pod for the containers in it.
func (e extras) addNetworks(stats []*runtimeapi.PodSandboxStats) {
	for _, s := range stats {
		m := s.GetAttributes().GetMetadata()
		e.names[m.GetNamespace()+"/"+m.GetName()] = networkOf(s)
		for _, c := range s.GetLinux().GetContainers() {
			e.network[c.GetAttributes().GetId()] = networkOf(s)
		}
	}
}

// fill adds the figures of one container to its row. Runtimes that do not say which
// containers a pod has are matched by the labels that a kubelet sets.
func (e extras) fill(u *output.Usage) {
	network, ok := e.network[u.ID]
	if !ok {
		network, ok = e.names[u.Namespace+"/"+u.Pod]
	}
	if !ok {
		network = unknownTraffic()
	}
	u.NetworkIn, u.NetworkOut = network.in, network.out
	e.fillBlocks(u)
	u.Pids = unknownAmount
	if n, ok := e.pids[u.ID]; ok {
		u.Pids = n
	}
}

func (e extras) fillBlocks(u *output.Usage) {
	blocks, ok := e.blocks[u.ID]
	if !ok {
		blocks = unknownTraffic()
	}
	u.BlockRead, u.BlockWrite = blocks.in, blocks.out
}
