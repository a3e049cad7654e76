package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/logfile"
)

// Logs choose the containers whose logs are in a bundle.
const (
	LogsAll       = "all"
	LogsUnhealthy = "unhealthy"
	LogsNone      = "none"
)

// Node has the parts that a CRI runtime tells.
type Node struct {
	Connect func(context.Context) (*client.Conn, error)
	Now     func() time.Time
	Logs    string // LogsAll, LogsUnhealthy or LogsNone
	Tail    int    // lines of each log
	Keep    Keep
	// CallLimit is how long one call may take; 0: 5 s.
	CallLimit time.Duration

	connected chan struct{}
	conn      *client.Conn
}

const (
	connectLimit = 35 * time.Second // the embedded shim may take 30
	inspectLimit = connectLimit + 20*time.Second
	callLimit    = 5 * time.Second // of one of many calls
	callsAtOnce  = 4
	// EventsSince is how far back events are read.
	EventsSince = 15 * time.Minute
)

// errHangs is the error of calls that are not made because the runtime hangs.
var errHangs = errors.New("the runtime does not answer")

// errNoRuntime is the error of the parts behind the first one, which says why.
var errNoRuntime = errors.New("no runtime answers")

// Part is a part that asks the runtime.
func (n *Node) Part(name string, collect func(context.Context, *client.Conn) (func(*Report), error)) Part {
	return Part{Name: name, Limit: inspectLimit, Collect: func(ctx context.Context) (func(*Report), error) {
		select {
		case <-n.connected:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if n.conn == nil {
			return nil, errNoRuntime
		}
		return collect(ctx, n.conn)
	}}
}

// Parts returns the parts of a runtime.
func (n *Node) Parts() []Part {
	n.connected = make(chan struct{})
	return []Part{
		{Name: "version", Limit: connectLimit, Collect: n.connect},
		n.Part("conditions", n.conditions), n.Part("pods", n.pods), n.Part("containers", n.containers), n.Part("images", n.images), n.Part("engine events", n.events),
	}
}

// Close closes the connection, once there is none to be made any more.
func (n *Node) Close() {
	select {
	case <-n.connected:
		if n.conn != nil {
			_ = n.conn.Close()
		}
	case <-time.After(callLimit):
	}
}

func (n *Node) connect(ctx context.Context) (func(*Report), error) {
	defer close(n.connected)
	var err error
	if n.conn, err = n.Connect(ctx); err != nil {
		n.conn = nil
		return nil, err
	}
	n.conn.LimitCalls(callLimit)
	v := n.conn.Version
	return func(r *Report) {
		r.Endpoint = bare(n.conn.RuntimeEndpoint)
		r.Runtime = &Runtime{v.GetRuntimeName(), v.GetRuntimeVersion(), v.GetRuntimeApiVersion()}
	}, nil
}

func (n *Node) conditions(ctx context.Context, conn *client.Conn) (func(*Report), error) {
	s, err := conn.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	return func(r *Report) { r.Conditions = newConditions(s.GetStatus()) }, err
}

func (n *Node) pods(ctx context.Context, conn *client.Conn) (func(*Report), error) {
	list, err := conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	all := make([]Pod, len(list.GetItems()))
	err = each(len(all), func(i int) error {
		p := list.GetItems()[i]
		s, err := conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.GetId(), Verbose: true})
		all[i] = newPod(p, s)
		return err
	})
	return func(r *Report) { r.Pods = all }, err
}

func (n *Node) containers(ctx context.Context, conn *client.Conn) (func(*Report), error) {
	list, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	pods, podsErr := conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	names := map[string]*runtimeapi.PodSandboxMetadata{}
	for _, p := range pods.GetItems() {
		names[p.GetId()] = p.GetMetadata()
	}
	stats, statsErr := conn.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	use := map[string]*runtimeapi.ContainerStats{}
	for _, s := range stats.GetStats() {
		use[s.GetAttributes().GetId()] = s
	}
	all, logs := make([]Container, len(list.GetContainers())), make([]File, len(list.GetContainers()))
	err = each(len(all), func(i int) error {
		c := list.GetContainers()[i]
		s, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
		all[i] = newContainer(c, s, names[c.GetPodSandboxId()], use[c.GetId()], n.Keep)
		if err == nil {
			logs[i], err = n.log(ctx, &all[i])
		}
		return err
	})
	return func(r *Report) {
		r.Containers = all
		for _, f := range logs {
			if f.Name != "" {
				r.Files = append(r.Files, f)
			}
		}
	}, errors.Join(err, podsErr, statsErr)
}

// unsafeInName matches characters that a file's name should not have.
var unsafeInName = lazyregexp.New(`[^A-Za-z0-9._-]+`)

// logBytes is how much of one log is kept.
const logBytes = 1 << 20

// log returns the last lines of a container's log as they are, if it is to be in the bundle.
func (n *Node) log(ctx context.Context, c *Container) (f File, err error) {
	path := cmp.Or(c.LogPath, c.engineLog)
	if n.Logs == LogsNone || n.Logs != LogsAll && !c.isUnhealthy() || path == "" || c.state == runtimeapi.ContainerState_CONTAINER_CREATED {
		return f, nil
	}
	name := unsafeInName.ReplaceAllString(strings.Join([]string{c.Namespace, c.Pod, c.Name, fmt.Sprint(c.Attempt), c.ID[:min(len(c.ID), 12)]}, "_"), "-")
	var text []byte
	begun := map[string]bool{} // lines that go on
	err = logfile.Read(ctx, path, logfile.Options{Tail: n.Tail}, func(e logfile.Entry) error {
		if !begun[e.Stream] {
			text = fmt.Appendf(text, "%s %s ", e.Time.UTC().Format(time.RFC3339Nano), e.Stream)
		}
		begun[e.Stream] = e.Partial()
		text = append(text, e.Text...)
		text = text[max(0, len(text)-logBytes):]
		return nil
	})
	if err != nil {
		err = fmt.Errorf("log of %s/%s/%s: %w", c.Namespace, c.Pod, c.Name, err)
	}
	return File{"logs/" + strings.Trim(name[max(0, len(name)-150):], ".-") + ".log", strings.ToValidUTF8(string(text), "\uFFFD")}, err
}

func (n *Node) images(ctx context.Context, conn *client.Conn) (func(*Report), error) {
	list, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	space, spaceErr := conn.Image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	return func(r *Report) {
		for _, i := range list.GetImages() {
			r.Images = append(r.Images, newImage(i))
		}
		for _, f := range space.GetImageFilesystems() {
			r.Disks = append(r.Disks, Disk{Path: f.GetFsId().GetMountpoint(), Use: "images", Used: f.GetUsedBytes().GetValue()})
		}
	}, errors.Join(err, spaceErr)
}

// events reads those that the engine behind our own shim keeps; other runtimes keep none.
func (n *Node) events(ctx context.Context, conn *client.Conn) (func(*Report), error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(n.CallLimit, callLimit)) // a stream has no limit of its own
	defer cancel()
	kept, err := conn.EngineEvents(ctx, n.Now().Add(-EventsSince), n.Now())
	if errors.Is(err, client.ErrNotDockershim) {
		return nil, nil //nolint:nilnil // there is nothing to add
	}
	return func(r *Report) {
		for _, e := range kept {
			where := strings.TrimSuffix(e.Namespace+"/"+e.Pod+"/"+e.Container, "/")
			r.Events = append(r.Events, Event{Time: nanoTime(e.Time.UnixNano()), Where: where, Reason: e.Action, Attempt: e.Attempt, ExitCode: e.ExitCode, Signal: e.Signal})
		}
	}, err
}

// each asks about each thing, a few at a time, until one call times out: a runtime that hangs is not asked again. Its error has
// the first one and the number of all.
func each(n int, ask func(int) error) (err error) {
	errs := make([]error, n)
	var hangs atomic.Bool
	var work errgroup.Group
	work.SetLimit(callsAtOnce)
	for i := range n {
		work.Go(func() error {
			if hangs.Load() {
				errs[i] = errHangs
				return nil
			}
			errs[i] = ask(i)
			if status.Code(errs[i]) == codes.DeadlineExceeded {
				hangs.Store(true)
			}
			return nil
		})
	}
	_ = work.Wait() // without errors
	failed := 0
	for _, one := range errs {
		if one != nil {
			failed++
			err = cmp.Or(err, one)
		}
	}
	if err != nil {
		err = fmt.Errorf("%d of %d failed, the first: %w", failed, n, err)
	}
	return err
}
