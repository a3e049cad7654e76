package bundle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/output"
)

// Logs choose the containers whose logs are in a bundle.
const (
	LogsAll       = "all"
	LogsUnhealthy = "unhealthy"
	LogsNone      = "none"
)

// Node has the parts that a CRI runtime tells.
type Node struct {
	Version string // crishim's own
	Connect func(context.Context) (*client.Conn, error)
	Now     func() time.Time
	Logs    string // LogsAll, LogsUnhealthy or LogsNone
	Tail    int    // lines of each log
	// CallLimit is how long one call may take; 0: 5 s.
	CallLimit time.Duration
	// Second is how long a second between two samples is; 0 means a second.
	Second time.Duration
	// Usage computes a row of the stats table from two samples.
	Usage func(before, after *runtimeapi.ContainerStats) output.Usage

	ctx        context.Context
	conn       shared[*client.Conn]
	pods       shared[[]*runtimeapi.PodSandbox]
	containers shared[[]*runtimeapi.Container]
	statuses   shared[[]*runtimeapi.ContainerStatusResponse]
}

// shared is the answer to a question that several parts have, asked once. A part waits for it until its own deadline.
type shared[T any] struct {
	once  sync.Once
	done  chan struct{}
	value T
	err   error
}

func (s *shared[T]) get(part, all context.Context, ask func(context.Context) (T, error)) (T, error) {
	s.once.Do(func() {
		go func() {
			defer close(s.done)
			s.value, s.err = ask(all)
		}()
	})
	select {
	case <-s.done:
		return s.value, s.err
	case <-part.Done():
		var none T
		return none, context.Cause(part)
	}
}

// errNoRuntime is the error of the parts behind the first one, which says why.
var errNoRuntime = errors.New("no runtime answers")

// Part is a part that asks the runtime.
func (n *Node) Part(name string, limit time.Duration, collect func(context.Context, *client.Conn, *Files) error) Part {
	return Part{Name: name, Limit: limit, Collect: func(ctx context.Context, f *Files) error {
		conn, err := n.connection(ctx)
		if err != nil {
			return errNoRuntime
		}
		return collect(n.limited(ctx), conn, f)
	}}
}

// Parts returns the parts of a runtime. The calls that they share end with ctx.
func (n *Node) Parts(ctx context.Context) []Part {
	n.ctx = n.limited(ctx)
	n.conn.done, n.pods.done, n.containers.done, n.statuses.done = make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	of := n.Part
	parts := []Part{
		{Name: "version", Limit: connectLimit, Collect: n.version},
		of("info", 0, n.info),
		of("pods", 0, n.listPods),
		of("containers", 0, n.listContainers),
		of("images", 0, n.listImages),
		of("inspect pods", inspectLimit, n.inspectPods),
		of("inspect containers", inspectLimit, n.inspectContainers),
		of("inspect images", inspectLimit, n.inspectImages),
		of("stats", 0, n.stats),
		of("pod stats", 0, n.podStats),
		of("events", 0, n.events),
	}
	if n.Logs != LogsNone {
		parts = append(parts, of("logs", inspectLimit, n.logs))
	}
	return parts
}

const (
	connectLimit = 35 * time.Second // the embedded shim may take 30
	inspectLimit = 30 * time.Second
	callLimit    = 5 * time.Second // of one of many calls
	callsAtOnce  = 4
	samples      = 5
)

// Close closes the connection. It does not wait for longer than a call may take.
func (n *Node) Close() {
	n.conn.once.Do(func() { // no part has come so far
		n.conn.err = errNoRuntime
		close(n.conn.done)
	})
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-n.conn.done
		if n.conn.err == nil {
			_ = n.conn.value.Close()
		}
	}()
	select {
	case <-closed:
	case <-time.After(callLimit):
	}
}

// limited gives each call a timeout, which ends before that of the part does.
func (n *Node) limited(ctx context.Context) context.Context {
	return client.WithTimeout(ctx, cmp.Or(n.CallLimit, callLimit), "--timeout")
}

func (n *Node) connection(ctx context.Context) (*client.Conn, error) {
	return n.conn.get(ctx, n.ctx, n.Connect)
}

func (n *Node) podList(ctx context.Context, conn *client.Conn) ([]*runtimeapi.PodSandbox, error) {
	return n.pods.get(ctx, n.ctx, func(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
		res, err := conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		return res.GetItems(), err
	})
}

func (n *Node) containerList(ctx context.Context, conn *client.Conn) ([]*runtimeapi.Container, error) {
	return n.containers.get(ctx, n.ctx, func(ctx context.Context) ([]*runtimeapi.Container, error) {
		res, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		return res.GetContainers(), err
	})
}

// statusList returns the statuses that can be had, in the order of the containers.
func (n *Node) statusList(ctx context.Context, conn *client.Conn) ([]*runtimeapi.ContainerStatusResponse, error) {
	containers, err := n.containerList(ctx, conn)
	if err != nil {
		return nil, err
	}
	return n.statuses.get(ctx, n.ctx, func(ctx context.Context) ([]*runtimeapi.ContainerStatusResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, inspectLimit-callLimit) // so that a part gets those that have answered
		defer cancel()
		return each(ctx, containers, func(ctx context.Context, c *runtimeapi.Container) (*runtimeapi.ContainerStatusResponse, error) {
			return conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
		})
	})
}

// each asks about each thing, a few at a time. Its error has the first one and the number of all.
func each[T, R any](ctx context.Context, things []T, ask func(context.Context, T) (R, error)) (found []R, err error) {
	answers, errs := make([]R, len(things)), make([]error, len(things))
	var work errgroup.Group
	work.SetLimit(callsAtOnce)
	for i, thing := range things {
		work.Go(func() error {
			answers[i], errs[i] = ask(ctx, thing)
			return nil
		})
	}
	_ = work.Wait() // without errors
	failed := 0
	for i := range things {
		if errs[i] == nil {
			found = append(found, answers[i])
			continue
		}
		failed++
		err = cmp.Or(err, errs[i])
	}
	if err != nil {
		err = fmt.Errorf("%d of %d failed, the first: %w", failed, len(things), err)
	}
	return found, err
}

func (n *Node) version(ctx context.Context, f *Files) error {
	own := map[string]any{"crishim": n.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "time": n.Now().Format(time.RFC3339)}
	conn, err := n.connection(ctx)
	if err == nil {
		own["endpoint"], own["imageEndpoint"], own["embeddedDockershim"], own["runtime"] = conn.RuntimeEndpoint, conn.ImageEndpoint, conn.Embedded, conn.Version
	}
	text, failed := json.Marshal(own)
	if failed != nil {
		return failed
	}
	return cmp.Or(err, f.Document("version.json", text, true))
}

func (n *Node) info(ctx context.Context, conn *client.Conn, f *Files) error {
	info, err := conn.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err == nil {
		err = f.View("info.json", "", output.Options{}, func(w io.Writer, o output.Options) error { return output.Info(w, info, o) })
	}
	config, failed := conn.Runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if status.Code(failed) == codes.Unimplemented { // containerd 1.6
		f.Note("this runtime does not tell its configuration")
		failed = nil
	} else if failed == nil {
		failed = f.View("runtime-config.json", "", output.Options{}, func(w io.Writer, o output.Options) error { return output.RuntimeConfig(w, config, o) })
	}
	return errors.Join(err, failed)
}

func (n *Node) listPods(ctx context.Context, conn *client.Conn, f *Files) error {
	pods, err := n.podList(ctx, conn)
	if err != nil {
		return err
	}
	for _, p := range pods {
		f.Public(p.GetMetadata().GetName(), p.GetMetadata().GetNamespace(), p.GetRuntimeHandler())
	}
	members := map[string][]*runtimeapi.Container{}
	containers, failed := n.containerList(ctx, conn)
	for _, c := range containers {
		members[c.GetPodSandboxId()] = append(members[c.GetPodSandboxId()], c)
	}
	err = f.View("pods.json", "Pods", output.Options{Now: n.Now(), Members: members}, func(w io.Writer, o output.Options) error {
		return output.Pods(w, &runtimeapi.ListPodSandboxResponse{Items: pods}, o)
	})
	return errors.Join(err, failed)
}

func (n *Node) listContainers(ctx context.Context, conn *client.Conn, f *Files) error {
	containers, err := n.containerList(ctx, conn)
	if err != nil {
		return err
	}
	o := output.Options{Now: n.Now(), Statuses: map[string]*runtimeapi.ContainerStatusResponse{}, Pods: map[string]*runtimeapi.PodSandboxMetadata{}}
	for _, c := range containers {
		f.Public(c.GetMetadata().GetName())
		f.Public(strings.FieldsFunc(c.GetImage().GetImage(), func(r rune) bool { return strings.ContainsRune("/:@", r) })...)
	}
	pods, podsErr := n.podList(ctx, conn)
	for _, p := range pods {
		o.Pods[p.GetId()] = p.GetMetadata()
	}
	statuses, statusErr := n.statusList(ctx, conn)
	for _, s := range statuses {
		o.Statuses[s.GetStatus().GetId()] = s
	}
	f.Draw(n.spans(statuses, n.names(ctx, conn)), nil)
	err = f.View("containers.json", "Containers", o, func(w io.Writer, o output.Options) error {
		return output.Containers(w, &runtimeapi.ListContainersResponse{Containers: containers}, o)
	})
	return errors.Join(err, podsErr, statusErr)
}

func (n *Node) listImages(ctx context.Context, conn *client.Conn, f *Files) error {
	images, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err == nil {
		for _, i := range images.GetImages() {
			for _, tag := range i.GetRepoTags() {
				f.Public(strings.FieldsFunc(tag, func(r rune) bool { return strings.ContainsRune("/:@", r) })...)
			}
		}
		err = f.View("images.json", "Images", output.Options{Now: n.Now()}, func(w io.Writer, o output.Options) error { return output.Images(w, images, o) })
	}
	space, failed := conn.Image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if failed == nil {
		failed = f.View("imagefsinfo.json", "Image filesystems", output.Options{}, func(w io.Writer, o output.Options) error {
			return output.ImageFsInfo(w, space, o)
		})
	}
	return errors.Join(err, failed)
}

// unsafeInName matches characters that a file's name should not have.
var unsafeInName = lazyregexp.New(`[^A-Za-z0-9._-]+`)

// fileName makes the name of a file from names and the beginning of an id.
func fileName(directory, ending, id string, names ...string) string {
	if at := strings.LastIndexByte(id, ':'); at >= 0 {
		id = id[at+1:]
	}
	names = slices.DeleteFunc(append(names, id[:min(len(id), 12)]), func(s string) bool { return s == "" })
	name := strings.Trim(unsafeInName.ReplaceAllString(strings.Join(names, "_"), "-"), ".-")
	return directory + "/" + name[max(0, len(name)-150):] + ending
}

func (n *Node) inspectPods(ctx context.Context, conn *client.Conn, f *Files) error {
	pods, err := n.podList(ctx, conn)
	if err != nil {
		return err
	}
	found, err := each(ctx, pods, func(ctx context.Context, p *runtimeapi.PodSandbox) (*runtimeapi.PodSandboxStatusResponse, error) {
		return conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.GetId(), Verbose: true})
	})
	for _, s := range found {
		m := s.GetStatus().GetMetadata()
		err = errors.Join(err, f.View(fileName("pods", ".json", s.GetStatus().GetId(), m.GetNamespace(), m.GetName()), "", output.Options{},
			func(w io.Writer, o output.Options) error {
				return output.InspectPods(w, []*runtimeapi.PodSandboxStatusResponse{s}, o)
			}))
	}
	return err
}

func (n *Node) inspectContainers(ctx context.Context, conn *client.Conn, f *Files) error {
	found, err := n.statusList(ctx, conn)
	names := n.names(ctx, conn)
	for _, s := range found {
		err = errors.Join(err, f.View(fileName("containers", ".json", s.GetStatus().GetId(), names[s.GetStatus().GetId()]...), "", output.Options{},
			func(w io.Writer, o output.Options) error {
				return output.InspectContainers(w, []*runtimeapi.ContainerStatusResponse{s}, o)
			}))
	}
	return err
}

func (n *Node) inspectImages(ctx context.Context, conn *client.Conn, f *Files) error {
	images, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return err
	}
	found, err := each(ctx, images.GetImages(), func(ctx context.Context, i *runtimeapi.Image) (*runtimeapi.ImageStatusResponse, error) {
		return conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: i.GetId()}, Verbose: true})
	})
	for _, s := range found {
		if s.GetImage() == nil { // removed meanwhile
			continue
		}
		tag := ""
		if tags := s.GetImage().GetRepoTags(); len(tags) > 0 {
			tag = tags[0]
		}
		err = errors.Join(err, f.View(fileName("images", ".json", s.GetImage().GetId(), tag), "", output.Options{},
			func(w io.Writer, o output.Options) error {
				return output.InspectImages(w, []*runtimeapi.ImageStatusResponse{s}, o)
			}))
	}
	return err
}
