package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Want is which attempt of a container, or sandbox of a pod, a name stands for.
type Want int

const (
	// Any takes the newest, whatever its state.
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
	// Attempt asks for this attempt and overrides Want.
	Attempt *uint32
}

// Container finds the container that a reference stands for: full id, name,
// pod/container, namespace/pod/container, the name of a pod with one running
// container, or a unique prefix of an id, tried in that order.
func (c *Conn) Container(ctx context.Context, ref string, want Want) (*runtimeapi.Container, error) {
	return c.FindContainer(ctx, Query{Ref: ref, Want: want})
}

// FindContainer is Container with a query.
func (c *Conn) FindContainer(ctx context.Context, q Query) (*runtimeapi.Container, error) {
	if err := checkRef(containerKind, q.Ref); err != nil {
		return nil, err
	}
	s, err := c.snapshotFor(ctx, q.Ref)
	if err != nil {
		return nil, err
	}
	found, err := s.find(containerKind, q)
	return found.container, withSkipped(err, c.runtime.skipped)
}

// Pod finds the pod that a reference stands for: full id, name,
// namespace/name or a unique prefix of an id, tried in that order.
func (c *Conn) Pod(ctx context.Context, ref string, want Want) (*runtimeapi.PodSandbox, error) {
	if err := checkRef(podKind, ref); err != nil {
		return nil, err
	}
	s, err := c.snapshot(ctx, false)
	if err != nil {
		return nil, err
	}
	found, err := s.find(podKind, Query{Ref: ref, Want: want})
	return found.pod, withSkipped(err, c.runtime.skipped)
}

// AttemptsOf lists the containers of one name in a pod, in whichever of its
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

func checkRef(kind objectKind, ref string) error {
	reason := ""
	parts := strings.Split(ref, "/")
	switch {
	case ref == "":
		reason = "must not be empty"
	case strings.ContainsFunc(ref, isControl):
		reason = "must not contain control characters"
	case len(parts) > kind.parts:
		reason = fmt.Sprintf("must have at most %d parts", kind.parts)
	case slices.Contains(parts, ""):
		reason = "must not have an empty part"
	default:
		return nil
	}
	return &SyntaxError{What: kind.name, Text: ref, Reason: reason, hint: "give " + kind.forms}
}

// IsFullID reports whether a reference looks like a whole id, as every runtime makes them. A
// request may then be made with it at once, and the container be looked up when that fails.
func IsFullID(ref string) bool {
	return len(ref) == 64 && strings.Trim(ref, "0123456789abcdef") == ""
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

// snapshot lists all pods and, where they matter, all containers at the same time.
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
