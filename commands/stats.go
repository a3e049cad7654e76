package commands

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newStats shows what containers use of the node.
func newStats(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "stats",
		Usage:     "show what containers use",
		ArgsUsage: "[CONTAINER]",
		Description: describe("CPU per cent of one core between two samples, memory, disk, network of the pod, block I/O and processes of running containers; "+
			"what the runtime does not tell is shown as -. Machine formats are one sample as the runtime gives it.",
			"crishim stats", "crishim stats --pod web -o wide", "crishim stats -o json"),
		Flags: append(statsFlags(output.StatsColumns),
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "also containers that use nothing, such as ended ones"},
			&cli.StringFlag{Name: "pod", Aliases: []string{"p"}, Usage: "containers of `POD`: name, namespace/name or id"},
		),
		Action: action(env, statsOptionsOf(output.StatsColumns), runStats),
	}
}

// statsFlags are the flags of both stats verbs.
func statsFlags(columns output.Columns) []cli.Flag {
	return append(listFlags(columns),
		&cli.StringFlag{Name: "id", Usage: "only the one whose id begins with `ID`"},
		&cli.StringSliceFlag{Name: "label", Usage: "only those with the label `KEY=VALUE`, or KEY for any value; several must all match"},
		selectorFlag(),
		&cli.IntFlag{Name: "seconds", Aliases: []string{"s"}, Value: 1, Usage: "`SECONDS` between two samples"},
		&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "go on until interrupted"},
	)
}

// usageQuery says whose stats to show and how often.
type usageQuery struct {
	target, id, pod string
	labels          map[string]string
	selector        client.Selector
	interval        time.Duration
	watch, all      bool
	output          output.Options

	unmeasured func(*runtimeapi.PodSandbox, error) // statsp: told of each that has no figures
}

func statsOptionsOf(columns output.Columns) func(*Env, *cli.Context) (usageQuery, error) {
	return func(env *Env, c *cli.Context) (usageQuery, error) { return readUsageQuery(env, c, columns) }
}

func readUsageQuery(env *Env, c *cli.Context, columns output.Columns) (q usageQuery, err error) {
	if err = argCount(c, 0, 1); err != nil {
		return q, err
	}
	q.target, q.id, q.pod = c.Args().First(), c.String("id"), c.String("pod")
	q.watch, q.all = c.Bool("watch"), c.Bool("all")
	if c.Int("seconds") < 1 {
		return q, usagef("--seconds %d: want at least 1", c.Int("seconds"))
	}
	q.interval = time.Duration(c.Int("seconds")) * time.Second
	if q.labels, q.selector, err = readLabelFilter(c); err != nil {
		return q, err
	}
	q.output, err = readListFormat(env, c, columns)
	q.output.Crictl = env.compat
	return q, err
}

func runStats(ctx context.Context, env *Env, q usageQuery) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	filter, err := q.containerFilter(ctx, conn)
	if err != nil {
		return err
	}
	display := &screen{out: env.Out, terminal: env.OutTerminal && !q.output.Format.ForMachines()}
	return refresh(ctx, q.watch, q.pauseBetweenPages(), func(ctx context.Context) error {
		var page bytes.Buffer
		q.output.Now = env.Now()
		if err := q.containerPage(ctx, conn, filter, &page); err != nil {
			return err
		}
		return display.show(page.Bytes())
	})
}

// pauseBetweenPages is none where a page takes two samples anyway.
func (q usageQuery) pauseBetweenPages() time.Duration {
	if q.output.Format.ForMachines() {
		return q.interval
	}
	return 0
}

// containerFilter turns names into what the runtime filters by.
func (q usageQuery) containerFilter(ctx context.Context, conn *client.Conn) (*runtimeapi.ContainerStatsFilter, error) {
	filter := &runtimeapi.ContainerStatsFilter{Id: q.id, LabelSelector: bothLabels(q.labels, q.selector)}
	if q.target != "" {
		c, err := conn.Container(ctx, q.target, client.Running)
		if err != nil {
			return nil, err
		}
		filter.Id = c.GetId()
	}
	if q.pod != "" {
		pod, err := conn.Pod(ctx, q.pod, client.Any)
		if err != nil {
			return nil, err
		}
		filter.PodSandboxId = pod.GetId()
	}
	return filter, nil
}

// containerPage takes the samples for one page and writes it.
func (q usageQuery) containerPage(ctx context.Context, conn *client.Conn, filter *runtimeapi.ContainerStatsFilter, page *bytes.Buffer) error {
	before, err := q.listContainerStats(ctx, conn, filter)
	if err != nil {
		return err
	}
	if q.output.Format.ForMachines() || q.output.Quiet {
		usages := containerUsages(before, before, beside{}, true)
		if err := q.nameUsages(ctx, conn, usages); err != nil {
			return err
		}
		return output.ContainerStats(page, before, usages, q.output)
	}
	more := q.besides(ctx, conn, true) // while the second sample is waited for
	after := before
	if q.watch || !rated(before) {
		if err := pause(ctx, q.interval); err != nil {
			return err
		}
		if after, err = q.listContainerStats(ctx, conn, filter); err != nil {
			return err
		}
	}
	usages := containerUsages(before, after, more(), q.all)
	if err := q.nameUsages(ctx, conn, usages); err != nil {
		return err
	}
	return output.ContainerStats(page, after, usages, q.output)
}

// besides asks for what crictl's tables do not have.
func (q usageQuery) besides(ctx context.Context, conn *client.Conn, pods bool) func() beside {
	o := q.output
	if o.Crictl && o.Format.Kind != output.Wide && len(o.Columns) == 0 && o.Sort == "" {
		return func() beside { return beside{} }
	}
	return besides(ctx, conn, pods)
}

// rated reports whether the runtime itself has measured every CPU rate, so
// that one sample is enough.
func rated(r *runtimeapi.ListContainerStatsResponse) bool {
	for _, s := range r.GetStats() {
		if s.GetCpu() != nil && s.GetCpu().GetUsageNanoCores() == nil {
			return false
		}
	}
	return true
}

// wants says that labels are those asked for.
func (q usageQuery) wants(labels map[string]string) bool {
	return hasLabels(labels, q.labels) && q.selector.Matches(labels)
}

// listContainerStats asks for the stats, and looks again at what a runtime
// that ignores filters sent.
func (q usageQuery) listContainerStats(ctx context.Context, conn *client.Conn, filter *runtimeapi.ContainerStatsFilter) (*runtimeapi.ListContainerStatsResponse, error) {
	res, err := conn.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	inPod, err := containersOf(ctx, conn, filter.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	kept := &runtimeapi.ListContainerStatsResponse{}
	for _, s := range res.GetStats() {
		if strings.HasPrefix(s.GetAttributes().GetId(), filter.GetId()) && inPod(s.GetAttributes().GetId()) && q.wants(s.GetAttributes().GetLabels()) {
			kept.Stats = append(kept.Stats, s)
		}
	}
	return kept, nil
}

// containersOf asks which containers a pod has, which their stats do not tell;
// no pod has all of them.
func containersOf(ctx context.Context, conn *client.Conn, pod string) (func(id string) bool, error) {
	if pod == "" {
		return func(string) bool { return true }, nil
	}
	res, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: pod}})
	ids := map[string]bool{}
	for _, c := range res.GetContainers() {
		ids[c.GetId()] = c.GetPodSandboxId() == pod
	}
	return func(id string) bool { return ids[id] }, err
}
