package cli

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli/live"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/output"
)

// StatsOptions are the options of the stats verbs.
type StatsOptions struct {
	Targets []string
	Filter  Filter
	seconds int
	second  time.Duration
	given   bool // --seconds is given
	watch   bool
	missing error // the error about targets that do not exist; ShowStats returns it after the stats of the other targets
	View    View
}

// Flags returns the flags of both stats verbs.
func (o *StatsOptions) Flags(columns output.Columns) []urfave.Flag {
	o.seconds = 1
	return append(o.View.ListFlags(columns, "IDs"),
		StringFlag(&o.Filter.ID, "id", "Filter by the beginning of the `ID`"),
		o.Filter.LabelFlag(),
		SelectorFlag(&o.Filter.Selector, "l"),
		o.Filter.In.NamespaceFlag(),
		IntFlag(&o.seconds, "seconds", "Wait `SECONDS` between two samples", "s"),
		BoolFlag(&o.watch, "watch", "Refresh until interrupted", "w"),
	)
}

func (o *StatsOptions) Check(in *Invocation, c *urfave.Context) error {
	o.Targets, o.given, o.second = c.Args().Slice(), c.IsSet("seconds"), cmp.Or(in.StatsSecond, time.Second)
	if o.seconds < 1 {
		return Invalid("seconds", o.seconds, "must be at least 1")
	}
	o.View.AnyFormat = in.Compat
	most := -1
	if in.Compat {
		most = 1
	}
	return cmp.Or(ArgCount(c, 0, most), o.Filter.Check(false), o.View.Check(in))
}

// Chosen calls find for each target and returns the ids; nil means all. If only some targets exist, ShowStats returns
// the error about the others after the stats. With --watch, Chosen returns the error at once.
func (o *StatsOptions) Chosen(p *Printer, find func(ref string) (string, error)) (ids []string, err error) {
	o.missing = Each(o.Targets, func(ref string) error {
		id, err := find(ref)
		if p.Compat && IsGone(err) { // crictl prints an empty list for an unknown target
			id, err = ref, nil
		}
		if err == nil {
			ids = append(ids, id)
		}
		return err
	})
	if len(ids) == 0 || o.watch {
		return ids, o.missing
	}
	return ids, nil
}

// shortSample is the time between two samples of the embedded shim, which reads the kernel's counters.
const shortSample = 200 * time.Millisecond

// OneSample reports whether the output needs no second sample.
func (o *StatsOptions) OneSample() bool { return o.View.Format.ForMachines() || o.View.Quiet }

// pages returns a function that writes a page. On a terminal a page replaces the page before.
func (o *StatsOptions) pages(p *Printer) (write func(page []byte) error, end func()) {
	if o.watch && p.OutTerminal && !p.dumb() && !o.View.Format.ForMachines() {
		display := live.Start(p.Out, p.Width())
		return func(page []byte) error { return display.Show(string(page)) }, func() { display.Close() }
	}
	return func(page []byte) error { _, err := p.Out.Write(page); return err }, func() {}
}

// ShowStats shows samples once or, with --watch, repeatedly. A table needs two samples for its rates.
func ShowStats[S any](ctx context.Context, p *Printer, conn *client.Conn, o *StatsOptions, pods bool,
	sample func(context.Context) ([]S, error), cpu func(S) *runtimeapi.CpuUsage, show func(w io.Writer, before, after []S, more Extras) error,
) error {
	interval := time.Duration(o.seconds) * o.second
	if conn.Embedded && !o.given && !o.watch {
		interval = shortSample
	}
	write, end := o.pages(p)
	defer end()
	between := interval
	if !o.OneSample() {
		between = 0 // a page with two samples already takes the interval
	}
	// If the runtime measures the rate itself, one sample is enough.
	unrated := func(s S) bool { return cpu(s) != nil && cpu(s).GetUsageNanoCores() == nil }
	err := Refresh(ctx, o.watch, between, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // stops AskExtras after an error
		o.View.Now = p.Now()
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
				asked = AskExtras(ctx, conn, pods)
			}
			if o.watch || slices.ContainsFunc(before, unrated) {
				if err := Sleep(ctx, interval); err != nil {
					return err
				}
				if after, err = sample(ctx); err != nil {
					return err
				}
			}
			more = asked()
		}
		if !o.watch {
			return show(p.Out, before, after, more)
		}
		var page bytes.Buffer
		if err := show(&page, before, after, more); err != nil {
			return err
		}
		return write(page.Bytes())
	})
	return Join(err, o.missing)
}

// nanosPerSecond is also the nanoseconds of CPU time in a second of one core.
const nanosPerSecond = 1e9

// SortUsages sorts by namespace, pod and name.
func SortUsages(usages []output.Usage) {
	slices.SortFunc(usages, func(a, b output.Usage) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}

// ContainerUsage returns the row of a container from a sample and the CPU usage of an earlier sample.
func ContainerUsage(before *runtimeapi.CpuUsage, s *runtimeapi.ContainerStats, more Extras) output.Usage {
	a := s.GetAttributes()
	u := output.Usage{
		ID: a.GetId(), Name: a.GetMetadata().GetName(),
		Pod: a.GetLabels()[kube.LabelPodName], Namespace: a.GetLabels()[kube.LabelPodNamespace],
		CPUPercent:  CPUPercent(before, s.GetCpu()),
		Memory:      Amount(s.GetMemory().GetWorkingSetBytes()),
		MemoryLimit: MemoryLimit(s.GetMemory()),
		Disk:        Amount(s.GetWritableLayer().GetUsedBytes()),
		Inodes:      Amount(s.GetWritableLayer().GetInodesUsed()),
		Swap:        Amount(s.GetSwap().GetSwapUsageBytes()),
	}
	more.fill(&u)
	return u
}

// MemoryLimit follows from the CRI's "available = limit - working set". 0 means no limit.
func MemoryLimit(m *runtimeapi.MemoryUsage) int64 {
	if m.GetAvailableBytes() == nil || m.GetAvailableBytes().GetValue() == 0 {
		return 0
	}
	return int64(m.GetAvailableBytes().GetValue() + m.GetWorkingSetBytes().GetValue())
}

// CPUPercent returns the CPU time per time between two samples, in per cent of one core. For samples with the same
// timestamp it returns the runtime's own rate.
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

// Sleep waits for d, or fails when ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Refresh calls page once or, with watch, until the user interrupts.
func Refresh(ctx context.Context, watch bool, interval time.Duration, page func(context.Context) error) error {
	for {
		err := page(ctx)
		if !watch {
			return err
		}
		if err == nil {
			err = Sleep(ctx, interval)
		}
		if ctx.Err() != nil {
			return ErrFollowed
		}
		if err != nil {
			return err
		}
	}
}
