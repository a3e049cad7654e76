package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/suggest"
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
	w, err := c.worldOf(ctx, q.Ref)
	if err != nil {
		return nil, err
	}
	found, err := w.find(containerKind, w.containerTiers(q.Ref), q)
	if err != nil {
		return nil, c.runtime.alsoAside(err)
	}
	return found.container, nil
}

// FindPod is Pod with a query.
func (c *Conn) FindPod(ctx context.Context, q Query) (*runtimeapi.PodSandbox, error) {
	if err := checkRef("pod", q.Ref); err != nil {
		return nil, err
	}
	w, err := c.world(ctx, false)
	if err != nil {
		return nil, err
	}
	found, err := w.find(podKind, w.podTiers(q.Ref), q)
	if err != nil {
		return nil, c.runtime.alsoAside(err)
	}
	return found.pod, nil
}

// AttemptsOf are the containers of one name in a pod, in whichever of its
// sandboxes: a runtime tells them apart by their attempt alone.
func (c *Conn) AttemptsOf(ctx context.Context, pod *runtimeapi.PodSandbox, name string) ([]*runtimeapi.Container, error) {
	w, err := c.world(ctx, true)
	if err != nil {
		return nil, err
	}
	m := pod.GetMetadata()
	var attempts []*runtimeapi.Container
	for _, ctr := range w.containers {
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

// IsFullID says whether a reference looks like a whole id. A request may then be
// made with it at once, and what it stands for be looked up when that fails.
func IsFullID(ref string) bool {
	return len(ref) == fullID && strings.Trim(ref, "0123456789abcdef") == ""
}

// worldOf is the world that a container's reference is looked up in. For a full
// id, as scripts give it, that one container is all of it, and the runtime is
// asked once.
func (c *Conn) worldOf(ctx context.Context, ref string) (*world, error) {
	if !IsFullID(ref) {
		return c.world(ctx, true)
	}
	res, err := c.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: ref}})
	if err != nil {
		return nil, err
	}
	if len(res.GetContainers()) != 1 {
		return c.world(ctx, true) // somebody may call a container like that
	}
	w := &world{now: c.now()}
	w.setContainers(res.GetContainers())
	return w, nil
}

// world asks for all pods and, where they matter, all containers at once.
func (c *Conn) world(ctx context.Context, containers bool) (*world, error) {
	w := &world{now: c.now()}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		r, err := c.Runtime.ListPodSandbox(gctx, &runtimeapi.ListPodSandboxRequest{})
		w.setPods(r.GetItems())
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
	w.setContainers(list)
	return w, nil
}

// notFound is the error for a reference that nothing answers to. It suggests
// the name that was most likely meant.
func (w *world) notFound(kind candidateKind, ref string) error {
	hint := fmt.Sprintf("`crishim %s` lists them", kind.verb)
	if pods := w.podsFor(kind, ref); len(pods) > 0 {
		hint = fmt.Sprintf("%s is a pod, and has none", clean(ref))
		if slices.ContainsFunc(w.containers, func(c candidate) bool { return c.container.GetPodSandboxId() == pods[0].id }) {
			hint = fmt.Sprintf("%s is a pod; `crishim ps -a --pod %[1]s` lists its containers", clean(ref))
		}
	} else if best := suggest.Closest(ref, w.referencesLike(kind, ref)); best != "" {
		hint = fmt.Sprintf("did you mean %s? %s", clean(best), hint)
	}
	return &Error{Code: codes.NotFound, text: fmt.Sprintf("there is no %s %q", kind.name, ref), hint: hint}
}

// podsFor are the sandboxes that a reference would have stood for where it was
// taken for a container's.
func (w *world) podsFor(kind candidateKind, ref string) []candidate {
	if kind == containerKind && strings.Count(ref, "/") < 2 {
		for _, match := range w.podTiers(ref) {
			if found := keep(w.pods, match); len(found) > 0 {
				return found
			}
		}
	}
	return nil
}

// referencesLike are the names with as many parts as ref that stand for something.
func (w *world) referencesLike(kind candidateKind, ref string) []string {
	var names []string
	all := w.pods
	if kind == containerKind {
		all = append(slices.Clone(w.containers), w.pods...) // a pod's name stands for its container
	}
	for _, c := range all {
		parts := []string{c.namespace, c.podName}
		if c.container != nil {
			parts = append(parts, c.name)
		}
		if n := strings.Count(ref, "/") + 1; n <= len(parts) && parts[len(parts)-n] != "" && parts[len(parts)-1] != "" {
			names = append(names, strings.Join(parts[len(parts)-n:], "/"))
		}
	}
	return names
}
