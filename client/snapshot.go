package client

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

// snapshot holds the runtime's pods and containers at one moment.
type snapshot struct {
	now        time.Time
	pods       []object
	containers []object
	sandboxes  map[string]*runtimeapi.PodSandbox
}

// object is a container or a sandbox. Exactly one of container and pod is set.
type object struct {
	container *runtimeapi.Container
	pod       *runtimeapi.PodSandbox

	id, namespace, podName, podUID, name string
	attempt                              uint32
	created                              int64
	running                              bool
	state                                string
}

// names returns the parts of the fully qualified name.
func (o object) names() []string {
	if o.container != nil {
		return []string{o.namespace, o.podName, o.name}
	}
	return []string{o.namespace, o.podName}
}

func (o object) path() string { return strings.TrimLeft(strings.Join(o.names(), "/"), "/") }

// snapshotFor returns a snapshot to resolve a container reference. For a full id, which scripts use, it lists only that
// container.
func (c *Conn) snapshotFor(ctx context.Context, q Query) (*snapshot, error) {
	if !IsFullID(q.Ref) || q.Namespace != "" || q.Container != "" {
		return c.snapshot(ctx, true)
	}
	res, err := c.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: q.Ref}})
	if err != nil {
		return nil, err
	}
	if len(res.GetContainers()) != 1 {
		return c.snapshot(ctx, true) // the reference may be the name of a container
	}
	s := &snapshot{now: c.now()}
	s.setContainers(res.GetContainers())
	return s, nil
}

func (c *Conn) snapshot(ctx context.Context, containers bool) (*snapshot, error) {
	s := &snapshot{now: c.now()}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		r, err := c.Runtime.ListPodSandbox(gctx, &runtimeapi.ListPodSandboxRequest{})
		s.setPods(r.GetItems())
		return err
	})
	var list []*runtimeapi.Container
	if containers {
		g.Go(func() error {
			r, err := c.Runtime.ListContainers(gctx, &runtimeapi.ListContainersRequest{})
			list = r.GetContainers()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	s.setContainers(list)
	return s, nil
}

func (s *snapshot) setPods(pods []*runtimeapi.PodSandbox) {
	s.sandboxes = make(map[string]*runtimeapi.PodSandbox, len(pods))
	for _, p := range pods {
		s.sandboxes[p.GetId()] = p
		m := p.GetMetadata()
		o := object{
			pod: p, id: p.GetId(), namespace: m.GetNamespace(), podName: m.GetName(), podUID: m.GetUid(),
			attempt: m.GetAttempt(), created: p.GetCreatedAt(),
			running: p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
			state:   shortState(p.GetState().String(), "SANDBOX_"),
		}
		if o.podName == "" { // no metadata from the runtime: count it separately
			o.podUID = o.id
		}
		s.pods = append(s.pods, o)
	}
}

func (s *snapshot) setContainers(list []*runtimeapi.Container) {
	for _, c := range list {
		o := object{
			container: c, id: c.GetId(), name: c.GetMetadata().GetName(), attempt: c.GetMetadata().GetAttempt(),
			namespace: c.GetLabels()[kube.LabelPodNamespace], podName: c.GetLabels()[kube.LabelPodName], podUID: c.GetLabels()[kube.LabelPodUID],
			created: c.GetCreatedAt(), running: c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING,
			state: shortState(c.GetState().String(), "CONTAINER_"),
		}
		if m := s.sandboxes[c.GetPodSandboxId()].GetMetadata(); m.GetName() != "" {
			o.namespace, o.podName, o.podUID = m.GetNamespace(), m.GetName(), m.GetUid()
		}
		if o.podName == "" {
			o.podUID = c.GetPodSandboxId()
		}
		s.containers = append(s.containers, o)
	}
}

func shortState(s, prefix string) string { return strings.ToLower(strings.TrimPrefix(s, prefix)) }

func (s *snapshot) within(q Query) *snapshot {
	if q.Namespace == "" && q.Container == "" {
		return s
	}
	narrow := *s
	in := func(o object) bool { return q.Namespace == "" || o.namespace == q.Namespace }
	narrow.pods = filter(s.pods, in)
	narrow.containers = filter(s.containers, func(o object) bool { return in(o) && (q.Container == "" || o.name == q.Container) })
	return &narrow
}

func filter(in []object, match matcher) []object {
	var out []object
	for _, o := range in {
		if match(o) {
			out = append(out, o)
		}
	}
	return out
}
