package client

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Want says which attempt of a container, or sandbox of a pod, a name stands for.
type Want int

const (
	// Any takes the newest, in whatever state.
	Any Want = iota
	// Running takes the running one and refuses when none runs.
	Running
	// PreferRunning takes the running one, or the newest when none runs.
	PreferRunning
)

// Last is the reference that stands for the newest container or pod.
const Last = "@last"

// Query is one reference with everything that may narrow it down.
type Query struct {
	Ref  string
	Want Want
	// Attempt asks for this attempt instead of what Want says.
	Attempt *uint32
}

// Container finds the container that a reference stands for: full id, name,
// pod/container, namespace/pod/container, the name of a pod with one running
// container, or a unique prefix of an id, tried in that order.
func (c *Conn) Container(ctx context.Context, ref string, want Want) (*runtimeapi.Container, error) {
	return c.FindContainer(ctx, Query{Ref: ref, Want: want})
}

// Pod finds the pod that a reference stands for: full id, name,
// namespace/name or a unique prefix of an id, tried in that order.
func (c *Conn) Pod(ctx context.Context, ref string, want Want) (*runtimeapi.PodSandbox, error) {
	return c.FindPod(ctx, Query{Ref: ref, Want: want})
}

// FindContainer is Container with a query.
func (c *Conn) FindContainer(ctx context.Context, q Query) (*runtimeapi.Container, error) {
	if err := checkRef("container", q.Ref); err != nil {
		return nil, err
	}
	s, err := c.snapshotFor(ctx, q.Ref)
	if err != nil {
		return nil, err
	}
	found, err := s.find(containerKind, s.containerMatchers(q.Ref), q)
	if err != nil {
		return nil, withSkipped(err, c.runtime.skipped)
	}
	return found.container, nil
}

// FindPod is Pod with a query.
func (c *Conn) FindPod(ctx context.Context, q Query) (*runtimeapi.PodSandbox, error) {
	if err := checkRef("pod", q.Ref); err != nil {
		return nil, err
	}
	s, err := c.snapshot(ctx, false)
	if err != nil {
		return nil, err
	}
	found, err := s.find(podKind, s.podMatchers(q.Ref), q)
	if err != nil {
		return nil, withSkipped(err, c.runtime.skipped)
	}
	return found.pod, nil
}

// AttemptsOf are the containers of one name in a pod, in whichever of its
// sandboxes: a runtime tells them apart by their attempt alone.
func (c *Conn) AttemptsOf(ctx context.Context, pod *runtimeapi.PodSandbox, name string) ([]*runtimeapi.Container, error) {
	s, err := c.snapshot(ctx, true)
	if err != nil {
		return nil, err
	}
	m := pod.GetMetadata()
	var attempts []*runtimeapi.Container
	for _, ctr := range s.containers {
		samePod := ctr.container.GetPodSandboxId() == pod.GetId() ||
			m.GetName() != "" && ctr.namespace == m.GetNamespace() && ctr.podName == m.GetName() && ctr.podUID == m.GetUid()
		if samePod && ctr.name == name {
			attempts = append(attempts, ctr.container)
		}
	}
	return attempts, nil
}

func checkRef(what, ref string) error {
	reason := ""
	parts := strings.Split(ref, "/")
	switch {
	case ref == "":
		reason = "is empty"
	case strings.ContainsFunc(ref, isControl):
		reason = "contains control characters"
	case len(parts) > 3 || what == "pod" && len(parts) > 2:
		reason = "has too many parts"
	}
	for _, p := range parts {
		if p == "" && reason == "" {
			reason = "has an empty part"
		}
	}
	if reason == "" {
		return nil
	}
	forms := "an id, a name, pod/container or namespace/pod/container"
	if what == "pod" {
		forms = "an id, a name or namespace/name"
	}
	return &SyntaxError{What: what, Text: ref, Reason: reason, hint: "give " + forms}
}

// fullID is the length of the ids that every runtime gives out.
const fullID = 64

// IsFullID reports whether a reference looks like a whole id. A request may then be
// made with it at once, and what it stands for be looked up when that fails.
func IsFullID(ref string) bool {
	return len(ref) == fullID && strings.Trim(ref, "0123456789abcdef") == ""
}

// snapshotFor is the snapshot that a container's reference is looked up in. For a full
// id, as scripts give it, that one container is all of it, and the runtime is
// asked once.
func (c *Conn) snapshotFor(ctx context.Context, ref string) (*snapshot, error) {
	if !IsFullID(ref) {
		return c.snapshot(ctx, true)
	}
	res, err := c.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: ref}})
	if err != nil {
		return nil, err
	}
	if len(res.GetContainers()) != 1 {
		return c.snapshot(ctx, true) // a container may have such a name
	}
	s := &snapshot{now: c.now()}
	s.setContainers(res.GetContainers())
	return s, nil
}

// snapshot asks for all pods and, where they matter, all containers at once.
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
