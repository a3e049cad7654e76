package top

import (
	"cmp"
	"context"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/output"
)

// diskPeriod is the interval of ImageFsInfo calls: some runtimes measure the file system each time.
const diskPeriod = 30 * time.Second

// extrasPeriod is the interval of metrics calls.
const extrasPeriod = 20 * time.Second

// feed collects the data of the model from a runtime, and from the kernel if the runtime is on this machine.
type feed struct {
	in     *cli.Invocation
	conn   *client.Conn
	filter *cli.Filter
	local  bool             // the runtime is on this machine
	sees   bool             // the files of the runtime's machine are visible
	asked  chan struct{}    // requests lists at once
	states map[string]state // of the containers in the last lists

	statuses map[string]*runtimeapi.ContainerStatusResponse // statuses of ended containers, which do not change
	before   map[string]*runtimeapi.CpuUsage                // by container
	extras   cli.Extras                                     // disk usage and processes
	extrasAt time.Time
	disk     nodeUsage // figures that are rarely read
	diskAt   time.Time
}

// state has the fields of a listed container that change.
type state struct {
	runtimeapi.ContainerState
	paused bool
}

func newFeed(in *cli.Invocation, conn *client.Conn, filter *cli.Filter) *feed {
	at := conn.RuntimeEndpoint
	if conn.Embedded {
		at = conn.Engine.Host
	}
	return &feed{in: in, conn: conn, filter: filter, local: strings.HasPrefix(at, "unix://"), sees: conn.SeesHost(), asked: make(chan struct{}, 1), disk: unknownNode()}
}

// lists asks for pods and containers, and for the status of newly ended containers.
func (f *feed) lists(ctx context.Context) (lists, error) {
	var pods []*runtimeapi.PodSandbox
	var podsErr error
	var asked sync.WaitGroup
	asked.Go(func() { pods, podsErr = f.filter.Pods(ctx, f.conn) })
	list, err := f.conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	asked.Wait()
	if err := cmp.Or(err, podsErr); err != nil {
		return lists{}, err
	}
	names := map[string]*runtimeapi.PodSandboxMetadata{}
	for _, p := range pods {
		names[p.GetId()] = p.GetMetadata()
	}
	containers := list.GetContainers()
	if f.filter.Given() || f.filter.In.Given() {
		containers = slices.DeleteFunc(containers, func(c *runtimeapi.Container) bool { return names[c.GetPodSandboxId()] == nil })
	}
	f.states = states(list.GetContainers())
	known := map[string]*runtimeapi.ContainerStatusResponse{}
	var dead []*runtimeapi.Container
	members := map[string][]*runtimeapi.Container{}
	for _, c := range containers {
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
	// The next call asks again for a missing status.
	if more, _ := cli.ContainerDetails(ctx, f.conn, dead, false); len(more) > 0 {
		for id, s := range more {
			if s.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
				known[id] = s
			}
		}
	}
	f.statuses = known
	managed := cli.ManagedPods(f.in.Printer, f.in.PodDirs(), f.conn, pods, nil)
	unmade, reasons := cli.PodsWithoutSandbox(ctx, f.in.Printer, f.in.PodDirs(), f.conn, pods, f.filter)
	maps.Copy(managed, reasons)
	return lists{append(pods, unmade...), containers, output.Options{
		Now: f.in.Now(), Terminal: true, Pods: names, Members: members, Statuses: known, Managed: managed,
	}}, nil
}

func states(containers []*runtimeapi.Container) map[string]state {
	all := map[string]state{}
	for _, c := range containers {
		all[c.GetId()] = state{c.GetState(), kube.IsPaused(c)}
	}
	return all
}

// changed reports whether containers have changed since the last lists. It costs half as much as lists.
func (f *feed) changed(ctx context.Context) bool {
	list, err := f.conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	return err != nil || !maps.Equal(f.states, states(list.GetContainers()))
}

// stats asks for the counters of all containers. Most runtimes return them, and the network counters, in
// ListPodSandboxStats. Disk and process counters need metrics calls. These are rare, because reading cgroups is most of
// the runtime's work.
func (f *feed) stats(ctx context.Context) (nodeStats, error) {
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
			return nodeStats{Err: f.in.Printer.Sentence(err)}, err
		}
		containers = res.GetStats()
	}
	s := nodeStats{At: time.Now(), DiskAt: f.extrasAt}
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
func (f *feed) node(ctx context.Context) nodeUsage {
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
			if directory := of.GetFsId().GetMountpoint(); f.local && f.sees && fs.ValidPath(strings.TrimPrefix(directory, "/")) {
				f.disk.addDisk(directory)
			}
		}
	}
	n.Images, n.DiskUsed, n.DiskTotal = f.disk.Images, f.disk.DiskUsed, f.disk.DiskTotal
	return n
}

// run sends lists and figures until ctx ends.
func (f *feed) run(ctx context.Context, every time.Duration, send func(any)) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { f.follow(ctx, send) })
	spent, pause := cpuTime(), firstPause // a rate needs two samples
	for {
		send(f.node(ctx))
		s, _ := f.stats(ctx) // s.Err has the error
		if ctx.Err() != nil {
			return
		}
		send(s)
		now := cpuTime()
		if cli.Sleep(ctx, cmp.Or(pause, every, pace(now-spent))) != nil {
			return
		}
		spent, pause = now, 0
	}
}

// follow sends lists after each event of the runtime, at once after an action of the user, and periodically, because the
// CRI has no event for a pause.
func (f *feed) follow(ctx context.Context, send func(any)) {
	happened := make(chan struct{}, 1)
	var noEvents atomic.Bool // the runtime has no events, or their stream has ended
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() {
		defer noEvents.Store(true)
		events, err := f.conn.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		for err == nil {
			if _, err = events.Recv(); err == nil {
				notify(happened)
			}
		}
	})
	var listed time.Time
	for all := true; ctx.Err() == nil; {
		spent := cpuTime()
		if all || noEvents.Load() || time.Since(listed) >= allPeriod || f.changed(ctx) {
			listed = time.Now()
			if lists, err := f.lists(ctx); err != nil {
				send(lost{f.in.Printer.Sentence(err)})
			} else {
				send(lists)
			}
		}
		rest, period := time.After(listPause(cpuTime()-spent)), time.After(listPeriod)
		var events <-chan struct{} // nil until rest has passed
		for waits := true; waits; {
			all, waits = true, false
			select {
			case <-rest:
				events, waits = happened, true
			case <-events:
			case <-f.asked:
			case <-period:
				all = false
			case <-ctx.Done():
			}
		}
	}
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

const (
	firstPause = time.Second             // between the first two samples
	listPeriod = 1500 * time.Millisecond // between checks for changes without an event: a pause is shown within 2 s
	allPeriod  = 10 * time.Second        // between lists without an event, because some changes cause no event
	leastPause = 2 * time.Second         // between two samples
	mostPause  = 20 * time.Second
	// costShare limits the CPU time of lists and samples, including the embedded dockershim, to 1/50 of a core.
	costShare = 50
)

// pace returns the time until the next sample after a round that used the given CPU time.
func pace(used time.Duration) time.Duration {
	return min(max(used*costShare, leastPause), mostPause)
}

// listPause returns how long events wait after lists that took the given CPU time. Otherwise, on a node with
// constant changes, each event would ask for lists.
func listPause(used time.Duration) time.Duration { return min(used*costShare, listPeriod) }

// cpuTime returns the CPU time of the process so far.
func cpuTime() time.Duration {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
