package cli

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// StatsOptions are whose stats to show and how often.
type StatsOptions struct {
	Targets []string
	Filter  Filter
	seconds int
	given   bool // the seconds
	watch   bool
	View    View
}

// Flags are those of both stats verbs.
func (o *StatsOptions) Flags(columns output.Columns) []urfave.Flag {
	o.seconds = 1
	return append(o.View.ListFlags(columns),
		StringFlag(&o.Filter.ID, "id", "only the one whose id begins with `ID`"),
		o.Filter.LabelFlag("only those"),
		SelectorFlag(&o.Filter.Selector, "l"),
		o.Filter.In.NamespaceFlag("n"),
		IntFlag(&o.seconds, "seconds", "`SECONDS` between two samples", "s"),
		BoolFlag(&o.watch, "watch", "refresh until interrupted", "w"),
	)
}

// Check reads the flags and the arguments.
func (o *StatsOptions) Check(env *Env, c *urfave.Context) error {
	o.Targets, o.given = c.Args().Slice(), c.IsSet("seconds")
	if o.seconds < 1 {
		return Invalid("seconds", o.seconds, "must be at least 1")
	}
	o.View.AnyFormat = env.Compat
	most := -1
	if env.Compat {
		most = 1
	}
	return cmp.Or(ArgCount(c, 0, most), o.Filter.Check(false), o.View.Check(env))
}

// Chosen returns the ids of the targets, which find looks up: nil for all. A single one is
// for the runtime to filter by, too.
func (o *StatsOptions) Chosen(env *Env, find func(ref string) (string, error)) (ids []string, err error) {
	err = Each(o.Targets, func(ref string) error {
		id, err := find(ref)
		if env.Compat && IsGone(err) { // crictl asks for it all the same, and lists nothing
			id, err = ref, nil
		}
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// shortSample is the time between the samples of one page of the embedded shim, which reads
// the counters of the kernel.
const shortSample = 200 * time.Millisecond

// OneSample reports whether what is shown needs no second one.
func (o *StatsOptions) OneSample() bool { return o.View.Format.ForMachines() || o.View.Quiet }

// ShowStats takes samples, two for a page of a table, and shows them, once or again and
// again.
func ShowStats[S any](ctx context.Context, env *Env, conn *client.Conn, o *StatsOptions, pods bool,
	sample func(context.Context) ([]S, error), cpu func(S) *runtimeapi.CpuUsage, show func(w io.Writer, before, after []S, more Extras) error,
) error {
	interval := time.Duration(o.seconds) * cmp.Or(env.StatsSecond, time.Second)
	if conn.Embedded && !o.given && !o.watch {
		interval = shortSample
	}
	display := &screen{out: env.Out, terminal: o.watch && env.OutTerminal && !o.View.Format.ForMachines()}
	between := time.Duration(0) // a page of two samples takes that long anyway
	if o.OneSample() {
		between = interval
	}
	// A rate that the runtime itself has measured makes one sample enough.
	unrated := func(s S) bool { return cpu(s) != nil && cpu(s).GetUsageNanoCores() == nil }
	return Refresh(ctx, o.watch, between, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends what is asked in the background, also when a sample fails
		o.View.Now = env.Now()
		before, err := sample(ctx)
		if err != nil {
			return err
		}
		after, more := before, Extras{}
		if !o.OneSample() {
			// crictl's tables have no extra figures.
			v := o.View
			asked := func() Extras { return Extras{} }
			if !v.Crictl || v.Format.Kind == output.Wide || len(v.Columns) > 0 || v.Sort != "" {
				asked = askExtras(ctx, conn, pods) // while the second sample is waited for
			}
			if o.watch || slices.ContainsFunc(before, unrated) {
				if err := Pause(ctx, interval); err != nil {
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

// UnknownAmount is a figure that the runtime did not give.
const UnknownAmount = -1

// nanosPerSecond is also the nanoseconds of CPU time in a second of one core.
const nanosPerSecond = 1e9

// Amount is v, or UnknownAmount.
func Amount(v *runtimeapi.UInt64Value) int64 {
	if v == nil {
		return UnknownAmount
	}
	return int64(v.GetValue())
}

// SortUsages sorts by namespace, pod and name.
func SortUsages(usages []output.Usage) {
	slices.SortFunc(usages, func(a, b output.Usage) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}

// MemoryLimit follows from the CRI's "available = limit - working set"; 0 is
// no limit.
func MemoryLimit(m *runtimeapi.MemoryUsage) int64 {
	if m.GetAvailableBytes() == nil || m.GetAvailableBytes().GetValue() == 0 {
		return 0
	}
	return int64(m.GetAvailableBytes().GetValue() + m.GetWorkingSetBytes().GetValue())
}

// CPUPercent is the CPU time per time between two samples, in per cent of one
// core; where the clock of the samples did not move it is the runtime's own
// rate, else unknown.
func CPUPercent(before, after *runtimeapi.CpuUsage) float64 {
	if after == nil {
		return UnknownAmount
	}
	elapsed := after.GetTimestamp() - before.GetTimestamp()
	used, earlier := after.GetUsageCoreNanoSeconds(), before.GetUsageCoreNanoSeconds()
	if before != nil && elapsed > 0 && used != nil && earlier != nil && used.GetValue() >= earlier.GetValue() {
		return 100 * float64(used.GetValue()-earlier.GetValue()) / float64(elapsed)
	}
	if rate := after.GetUsageNanoCores(); rate != nil {
		return 100 * float64(rate.GetValue()) / nanosPerSecond
	}
	return UnknownAmount
}

// Traffic is what has been received and sent, or read and written, in bytes.
type Traffic struct{ In, Out int64 }

func unknownTraffic() Traffic { return Traffic{UnknownAmount, UnknownAmount} }

// NetworkOf is what a pod has received and sent.
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

// askExtras asks for them in the background and returns a function that waits for the
// answers. A runtime that lacks one of them leaves columns empty; that is no error.
func askExtras(ctx context.Context, conn *client.Conn, pods bool) func() Extras {
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

// screen shows one page after another: on a terminal each in the place of the
// one before, in a pipe one behind the other and without any escape code.
type screen struct {
	out      io.Writer
	terminal bool
	shown    bool
}

// Escape codes of every terminal in use: home, erase to the end of the line,
// erase to the end of the screen.
const (
	cursorHome  = "\x1b[H"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
	eraseScreen = "\x1b[2J"
)

// show writes one page.
func (s *screen) show(page []byte) error {
	if !s.terminal {
		_, err := s.out.Write(page)
		return err
	}
	var b bytes.Buffer
	if !s.shown {
		b.WriteString(eraseScreen)
	}
	s.shown = true
	b.WriteString(cursorHome)
	for line := range bytes.Lines(page) {
		b.Write(bytes.TrimSuffix(line, []byte("\n")))
		b.WriteString(eraseLine + "\n")
	}
	b.WriteString(eraseBelow)
	_, err := s.out.Write(b.Bytes())
	return err
}

// Pause waits for d or until ctx ends, and reports which by its error.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Refresh calls page once or, if asked to watch, again and again until the
// user interrupts, which is how a watch ends well.
func Refresh(ctx context.Context, watch bool, interval time.Duration, page func(context.Context) error) error {
	for {
		err := page(ctx)
		if !watch {
			return err
		}
		if err == nil {
			err = Pause(ctx, interval)
		}
		if ctx.Err() != nil {
			return ErrFollowed
		}
		if err != nil {
			return err
		}
	}
}
