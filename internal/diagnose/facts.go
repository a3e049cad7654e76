// Package diagnose finds out why pods and containers do not run as they should.
//
// A [Collector] gathers [Facts] from the runtime, from the records of apply and sync, from the engine's own journal, and
// from the host: cgroups, the kernel log, filesystems, ports, the CNI cache. Facts also name the sources that could not be
// read. [Explain] draws conclusions from the facts without further calls, so that tests can use recorded facts.
//
// Text that a container or its author controls is only shown: the log, the termination message, labels, annotations. No
// verdict depends on it. The package changes nothing.
package diagnose

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// Facts is a snapshot of pods and their node.
type Facts struct {
	At   time.Time
	Node Node
	Pods []*Pod
	// Failed has the errors of runtime calls that are not essential.
	Failed []error
}

// Node has the facts of the host and its runtime.
type Node struct {
	Booted        time.Time // zero if unknown
	EngineStarted time.Time // start of the process that serves the endpoint
	Conditions    []*runtimeapi.RuntimeCondition
	Kills         []oomKill // OOM kills, oldest first
	Filesystems   []Filesystem
	Leases        map[string]int // number of addresses that host-local has allocated, by network
	Invalid       []kuberuntime.InvalidManifest
	// Unread lists the sources that could not be read, with the reason.
	Unread []string
}

// Pod has the facts of one pod.
type Pod struct {
	*kuberuntime.Description
	Owner      kuberuntime.Owner
	Containers map[string]*containerFacts // by id; containers that run or failed
	Ports      map[hostPort]portHolder    // the pod's host ports that another process holds
	Inside     map[hostPort]portHolder    // containers' ports that any process in the pod's network holds
	Missing    []string                   // paths of hostPath volumes that do not exist
	Journal    []client.EngineEvent       // events of containers and sandboxes, oldest first
}

// containerFacts has the details of one attempt.
type containerFacts struct {
	Args         []string
	Memory       *memoryUse // counters of its cgroup; nil if the cgroup is gone or unreadable
	Paused       bool
	Missing      []string // mount sources that do not exist
	Full         []string // targets of writable mounts without free space or inodes
	Architecture string   // the image's, if it differs from the host's
	Program      *program // why its command cannot run; nil if not examined
}

// Options names the sources of facts.
type Options struct {
	Dirs pod.Dirs // directories of apply and sync
	Now  func() time.Time
	Host Host
}

// Collector collects the facts of one runtime on this host.
type Collector struct {
	conn    *client.Conn
	manager *kuberuntime.Manager
	o       Options

	mu     sync.Mutex // guards failed
	failed []error
}

// fail records the error of a call that is not essential. Equal errors are recorded once.
func (c *Collector) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !slices.ContainsFunc(c.failed, func(before error) bool { return before.Error() == err.Error() }) {
		c.failed = append(c.failed, err)
	}
}

// Open returns a Collector that uses conn. The caller still owns conn and closes it.
func Open(ctx context.Context, conn *client.Conn, o Options) (*Collector, error) {
	host, err := criconfig.ReadHost()
	if err != nil {
		return nil, err
	}
	ko := kuberuntime.ConnOptions(conn)
	ko.Dirs, ko.Host, ko.Now = o.Dirs, host, o.Now
	m, err := kuberuntime.New(ctx, ko)
	if err != nil {
		return nil, err
	}
	o.Host.Hidden = o.Host.Hidden || !conn.SeesHost()
	return &Collector{conn: conn, manager: m, o: o}, nil
}

func (c *Collector) Close() { c.manager.Close() }

// Pods lists the runtime's pods, and pods without a sandbox that a running apply or sync manages or could not create.
func (c *Collector) Pods(ctx context.Context) ([]*pod.Pod, error) { return c.manager.LivePods(ctx) }

// podsAtOnce limits the pods that are collected in parallel.
const podsAtOnce = 8

// collectPod collects the facts of one pod, not of its node.
func (c *Collector) collectPod(ctx context.Context, p *pod.Pod) (*Pod, error) {
	d, err := c.manager.Describe(ctx, p)
	if err != nil {
		return nil, err
	}
	c.fail(d.Unread)
	out := &Pod{Description: d, Owner: c.manager.OwnerOf(ctx, p), Containers: map[string]*containerFacts{}}
	for _, volume := range d.Pod.Spec.Volumes {
		if volume.HostPath != nil && !c.o.Host.exists(volume.HostPath.Path) {
			out.Missing = append(out.Missing, volume.HostPath.Path)
		}
	}
	return out, nil
}

// Collect collects the facts of pods and of the node. Containers that are removed meanwhile are omitted.
func (c *Collector) Collect(ctx context.Context, pods ...*pod.Pod) (*Facts, error) {
	f := &Facts{At: c.o.Now(), Pods: make([]*Pod, len(pods))}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(podsAtOnce)
	var journal []client.EngineEvent
	var noJournal error
	work.Go(func() error {
		f.Node = c.node(ctx)
		return nil
	})
	work.Go(func() error {
		journal, noJournal = c.conn.EngineEvents(ctx, f.At.Add(-journalAge), time.Time{})
		return nil
	})
	for i, p := range pods {
		work.Go(func() error {
			found, err := c.collectPod(ctx, p)
			if err != nil {
				return err
			}
			f.Pods[i] = found
			return c.details(ctx, found)
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	if !errors.Is(noJournal, client.ErrNotDockershim) {
		c.fail(noJournal)
	}
	f.Failed, c.failed = c.failed, nil
	for _, e := range journal {
		for _, p := range f.Pods {
			if e.PodUID == p.Status.UID && e.Pod == p.Status.Name && e.Namespace == p.Status.Namespace {
				p.Journal = append(p.Journal, e)
			}
		}
	}
	c.ports(f)
	return f, nil
}

// journalAge exceeds the time for which engines keep events.
const journalAge = 7 * 24 * time.Hour

// details collects the newest two attempts of each container: Explain reads no others.
func (c *Collector) details(ctx context.Context, p *Pod) error {
	for _, view := range p.View.Containers {
		attempts := p.Status.Attempts(view.Container.Name)
		for _, attempt := range attempts[:min(len(attempts), 2)] {
			if attempt.Succeeded() {
				continue
			}
			detail, err := c.container(ctx, attempt)
			if err != nil {
				return err
			}
			p.Containers[attempt.ID] = detail
		}
	}
	return nil
}

// atOnce is the longest run of an attempt whose command is inspected. Some runtimes start the container before they
// execute its command, so that an attempt seems to run for a short time although its command cannot be executed.
const atOnce = 2 * time.Second

func (c *Collector) container(ctx context.Context, attempt *pod.ContainerStatus) (*containerFacts, error) {
	r, err := c.conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: attempt.ID, Verbose: true})
	if status.Code(err) == codes.NotFound {
		return &containerFacts{}, nil
	}
	if err != nil {
		return nil, err
	}
	var info struct {
		Pid  int `json:"pid"`
		Spec struct {
			Process struct {
				Args, Env []string
				Cwd       string
			} `json:"process"`
		} `json:"runtimeSpec"`
	}
	_ = json.Unmarshal([]byte(r.GetInfo()["info"]), &info) // some runtimes have no info, or not as JSON
	out := &containerFacts{Args: info.Spec.Process.Args}
	if attempt.Running() {
		out.Memory, out.Paused = c.o.Host.memory(info.Pid, attempt.ID), c.o.Host.paused(info.Pid, attempt.ID)
		return out, nil
	}
	out.Architecture = c.foreignImage(ctx, cmp.Or(r.GetStatus().GetImageId(), r.GetStatus().GetImageRef(), attempt.Image))
	if attempt.NeverStarted() || attempt.FinishedAt.Sub(attempt.StartedAt) < atOnce {
		out.Program = c.program(ctx, attempt.ID, r.GetInfo(), info.Spec.Process.Args, info.Spec.Process.Env, info.Spec.Process.Cwd)
	}
	for _, m := range attempt.Mounts {
		if full := c.o.Host.filesystems(m.GetHostPath()); !m.GetReadonly() && len(full) > 0 && min(full[0].Space, full[0].Inodes) == 0 {
			out.Full = append(out.Full, m.GetContainerPath())
		}
		if path := m.GetHostPath(); path != "" && !c.o.Host.exists(path) && !slices.Contains(out.Missing, path) {
			out.Missing = append(out.Missing, path)
		}
	}
	return out, nil
}

// foreignImage returns the image's architecture if it differs from the host's, else "".
func (c *Collector) foreignImage(ctx context.Context, ref string) string {
	r, err := c.conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}, Verbose: true})
	if err != nil {
		c.fail(err)
		return ""
	}
	var info struct {
		Architecture string `json:"architecture"`
		Spec         struct {
			Architecture string `json:"architecture"`
		} `json:"imageSpec"`
	}
	_ = json.Unmarshal([]byte(r.GetInfo()["info"]), &info)
	if found := cmp.Or(info.Spec.Architecture, info.Architecture); found != "" && found != runtime.GOARCH {
		return found
	}
	return ""
}
