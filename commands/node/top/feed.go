package top

import (
	"context"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

// diskPeriod is how often the file system of the images is looked at: some runtimes count it each time.
const diskPeriod = 30 * time.Second

// extrasPeriod is how often the metrics are asked for.
const extrasPeriod = 10 * time.Second

// feed asks a runtime, and the kernel of this machine if the runtime is on it, for what the model shows.
type feed struct {
	env   *cli.Env
	conn  *client.Conn
	local bool

	statuses map[string]*runtimeapi.ContainerStatusResponse // of containers that have ended, which do not change
	before   map[string]*runtimeapi.CpuUsage                // by container
	extras   cli.Extras                                     // disk and processes
	extrasAt time.Time
	disk     Node // what is asked for rarely
	diskAt   time.Time
}

func newFeed(env *cli.Env, conn *client.Conn) *feed {
	at := conn.RuntimeEndpoint
	if conn.Embedded {
		at = conn.Engine.Host
	}
	return &feed{env: env, conn: conn, local: strings.HasPrefix(at, "unix://"), disk: unknownNode()}
}

// lists asks for pods and containers, and for the status of those that have ended since.
func (f *feed) lists(ctx context.Context) (Lists, error) {
	var pods *runtimeapi.ListPodSandboxResponse
	var podsErr error
	var asked sync.WaitGroup
	asked.Go(func() { pods, podsErr = f.conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}) })
	containers, err := f.conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	asked.Wait()
	if err == nil {
		err = podsErr
	}
	if err != nil {
		return Lists{}, err
	}
	known := map[string]*runtimeapi.ContainerStatusResponse{}
	var dead []*runtimeapi.Container
	members := map[string][]*runtimeapi.Container{}
	for _, c := range containers.GetContainers() {
		members[c.GetPodSandboxId()] = append(members[c.GetPodSandboxId()], c)
		if c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			continue
		}
		if s := f.statuses[c.GetId()]; s != nil {
			known[c.GetId()] = s
		} else {
			dead = append(dead, c)
		}
	}
	// One that cannot be had is asked for again the next time.
	if more, _ := cli.ContainerDetails(ctx, f.conn, dead, false); len(more) > 0 {
		for id, s := range more {
			if s.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
				known[id] = s
			}
		}
	}
	f.statuses = known
	names := map[string]*runtimeapi.PodSandboxMetadata{}
	for _, p := range pods.GetItems() {
		names[p.GetId()] = p.GetMetadata()
	}
	managed := f.env.ManagedPods(pods.GetItems(), nil)
	unmade, reasons := f.env.UnmadePods(ctx, f.conn, pods.GetItems(), &cli.Filter{})
	maps.Copy(managed, reasons)
	return Lists{append(pods.GetItems(), unmade...), containers.GetContainers(), output.Options{
		Now: f.env.Now(), Terminal: true, Pods: names, Members: members, Statuses: known, Managed: managed,
	}}, nil
}

// stats asks for the counters of all containers. Those of pods have them on most runtimes, with the network, in one
// call; what is in the metrics only, they are asked for now and then: most of what all this costs is the runtime's
// reading of cgroups.
func (f *feed) stats(ctx context.Context) (Stats, error) {
	if time.Since(f.extrasAt) >= extrasPeriod {
		f.extras, f.extrasAt = cli.AskExtras(ctx, f.conn, false)(), time.Now()
	}
	var containers []*runtimeapi.ContainerStats
	extras := f.extras
	if res, err := f.conn.Runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{}); err == nil {
		extras = extras.WithNetworks(res.GetStats())
		for _, p := range res.GetStats() {
			containers = append(containers, p.GetLinux().GetContainers()...)
		}
	}
	if len(containers) == 0 {
		res, err := f.conn.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
		if err != nil {
			return Stats{Err: cli.Sentence(f.env, err)}, err
		}
		containers = res.GetStats()
	}
	s := Stats{At: time.Now(), DiskAt: f.extrasAt}
	before := f.before
	f.before = map[string]*runtimeapi.CpuUsage{}
	for _, c := range containers {
		id := c.GetAttributes().GetId()
		f.before[id] = c.GetCpu()
		s.Usages = append(s.Usages, cli.ContainerUsage(before[id], c, extras))
	}
	return s, nil
}

// node reads the figures of this machine, and asks the runtime where its images are.
func (f *feed) node(ctx context.Context) Node {
	n := unknownNode()
	if f.local {
		n = readNode("/proc")
	}
	if time.Since(f.diskAt) >= diskPeriod {
		f.diskAt = time.Now()
		if res, err := f.conn.Image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{}); err == nil && len(res.GetImageFilesystems()) > 0 {
			of := res.GetImageFilesystems()[0]
			f.disk = unknownNode()
			f.disk.Images = cli.Amount(of.GetUsedBytes())
			if directory := of.GetFsId().GetMountpoint(); f.local && fs.ValidPath(strings.TrimPrefix(directory, "/")) {
				f.disk.addDisk(directory)
			}
		}
	}
	n.Images, n.DiskUsed, n.DiskTotal = f.disk.Images, f.disk.DiskUsed, f.disk.DiskTotal
	return n
}

// run sends what there is until the context ends: lists after each event of the runtime, or each second where it
// has none, figures in a period, or as often as they may cost.
func (f *feed) run(ctx context.Context, every time.Duration, send func(any)) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		_ = cli.Watch(ctx, f.conn, func(ctx context.Context) error {
			before := cpuTime()
			lists, err := f.lists(ctx)
			if err != nil {
				send(Lost{cli.Sentence(f.env, err)})
				return nil //nolint:nilerr // it is shown, and the next round may have better luck
			}
			send(lists)
			return cli.Pause(ctx, listPause(cpuTime()-before))
		})
	})
	spent := cpuTime()
	for {
		send(f.node(ctx))
		s, err := f.stats(ctx)
		if ctx.Err() != nil {
			return
		}
		_ = err // it is in what is sent
		send(s)
		now := cpuTime()
		if cli.Pause(ctx, pace(every, now-spent)) != nil {
			return
		}
		spent = now
	}
}

// The time between two samples where the user has not chosen it.
const (
	leastPause = 2 * time.Second
	mostPause  = 20 * time.Second
	// costShare is the part of a core that samples may take, embedded dockershim included, and lists as well: 1/100.
	costShare = 100
)

// pace returns how long to wait for the next sample, when the last round took so much of the processor.
func pace(every, used time.Duration) time.Duration {
	if every > 0 {
		return every
	}
	return min(max(used*costShare, leastPause), mostPause)
}

// listPause returns how long to wait after lists before an event may ask for them again: where containers come and go all the
// time, each event would.
func listPause(used time.Duration) time.Duration { return min(used*costShare, mostPause) }

// cpuTime is what the process has taken of the processors so far.
func cpuTime() time.Duration {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
