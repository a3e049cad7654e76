package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/shellwords"
)

// Want selects an attempt of a container, or a sandbox of a pod.
type Want int

const (
	NewestAttempt  Want = iota // the newest attempt, in any state
	RunningAttempt             // the running attempt; an error if none runs
	PreferRunning              // the running attempt, else the newest
)

// LastRef is the reference to the newest container or pod.
const LastRef = "@last"

type Query struct {
	Ref           string
	Want          Want
	Attempt       *uint32 // overrides Want
	Namespace     string
	Container     string // container name in the pod Ref
	ContainerFlag bool   // the verb has a flag for Container
}

// pod returns the pod as NAME or NAMESPACE/NAME.
func (q Query) pod() string {
	if q.Namespace == "" || strings.Contains(q.Ref, "/") {
		return clean(q.Ref)
	}
	return clean(q.Namespace + "/" + q.Ref)
}

// Container resolves a reference to a container: full id, name, pod/container, namespace/pod/container, the name of a
// pod with one running container, or a unique id prefix, tried in that order.
func (c *Conn) Container(ctx context.Context, ref string, want Want) (*runtimeapi.Container, error) {
	return c.FindContainer(ctx, Query{Ref: ref, Want: want})
}

func (c *Conn) FindContainer(ctx context.Context, q Query) (*runtimeapi.Container, error) {
	if err := checkRef(containerKind, q.Ref); err != nil {
		return nil, err
	}
	s, err := c.snapshotFor(ctx, q)
	if err != nil {
		return nil, err
	}
	found, err := s.within(q).find(containerKind, q)
	if status.Code(err) == codes.NotFound && q.Container == "" && c.isOutsidePods(ctx, q.Ref) {
		return nil, &Error{
			Code: codes.NotFound, text: fmt.Sprintf("container %q is Docker's own and in no pod: it is not Kubernetes'", q.Ref),
			hint: fmt.Sprintf("docker's verbs are for it, such as `docker exec %s` and `docker logs %[1]s`", shellwords.Quote(clean(q.Ref))),
		}
	}
	return found.container, withSkipped(err, c.runtime.skipped())
}

// isOutsidePods reports whether the dockershim's engine has a container of that name or id outside any pod.
func (c *Conn) isOutsidePods(ctx context.Context, ref string) bool {
	if c.Version.GetRuntimeName() != "docker" || strings.Contains(ref, "/") {
		return false
	}
	_, err := c.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: ref})
	var worded *Error
	if errors.As(err, &worded) {
		err = worded.err
	}
	return slices.ContainsFunc(status.Convert(err).Details(), func(detail any) bool {
		text, ok := detail.(*wrapperspb.StringValue)
		return ok && text.GetValue() == api.DetailNoPod
	})
}

// Pod resolves a reference to a pod: full id, name, namespace/name or a unique id prefix, tried in that order.
func (c *Conn) Pod(ctx context.Context, ref string, want Want) (*runtimeapi.PodSandbox, error) {
	return c.FindPod(ctx, Query{Ref: ref, Want: want})
}

func (c *Conn) FindPod(ctx context.Context, q Query) (*runtimeapi.PodSandbox, error) {
	if err := checkRef(podKind, q.Ref); err != nil {
		return nil, err
	}
	s, err := c.snapshot(ctx, false)
	if err != nil {
		return nil, err
	}
	found, err := s.within(q).find(podKind, q)
	return found.pod, withSkipped(err, c.runtime.skipped())
}

// PodOf is FindPod for read-only verbs: it also accepts pod/container and namespace/pod/container.
func (c *Conn) PodOf(ctx context.Context, q Query) (*runtimeapi.PodSandbox, error) {
	pod, err := c.FindPod(ctx, q)
	if err == nil || !strings.Contains(q.Ref, "/") {
		return pod, err
	}
	ctr, notFound := c.FindContainer(ctx, Query{Ref: q.Ref, Want: PreferRunning, Namespace: q.Namespace})
	if notFound != nil {
		return nil, err
	}
	return c.FindPod(ctx, Query{Ref: ctr.GetPodSandboxId(), Want: q.Want})
}

// ContainersOf lists the containers of a pod, in all of its sandboxes.
func (c *Conn) ContainersOf(ctx context.Context, pod *runtimeapi.PodSandbox) ([]*runtimeapi.Container, error) {
	s, err := c.snapshot(ctx, true)
	if err != nil {
		return nil, err
	}
	m := pod.GetMetadata()
	var own []*runtimeapi.Container
	for _, ctr := range s.containers {
		if ctr.container.GetPodSandboxId() == pod.GetId() ||
			m.GetName() != "" && ctr.namespace == m.GetNamespace() && ctr.podName == m.GetName() && ctr.podUID == m.GetUid() {
			own = append(own, ctr.container)
		}
	}
	return own, nil
}

func (c *Conn) AttemptsOf(ctx context.Context, pod *runtimeapi.PodSandbox, name string) ([]*runtimeapi.Container, error) {
	all, err := c.ContainersOf(ctx, pod)
	return slices.DeleteFunc(all, func(c *runtimeapi.Container) bool { return c.GetMetadata().GetName() != name }), err
}

// IsFullID reports whether a reference looks like a full id, so that it needs no lookup.
func IsFullID(ref string) bool {
	return len(ref) == 64 && strings.Trim(ref, "0123456789abcdef") == ""
}

// objectKind holds the differences between containers and pods in references and messages.
type objectKind struct {
	name, list, running string
	parts               int // maximum parts of a reference
	forms               string
}

var (
	containerKind = objectKind{"container", "ps -a", "running", 3, "an id, a name, pod/container or namespace/pod/container"}
	podKind       = objectKind{"pod", "pods", "ready", 2, "an id, a name or namespace/name"}
)

type matcher func(object) bool

// containerMatchers returns the interpretations of a reference in order of precedence.
func (s *snapshot) containerMatchers(ref string) []matcher {
	parts := strings.Split(ref, "/")
	switch len(parts) {
	case 2:
		return []matcher{
			func(o object) bool { return o.podName == parts[0] && o.name == parts[1] },
			s.onlyRunning(func(o object) bool { return o.namespace == parts[0] && o.podName == parts[1] }),
		}
	case 3:
		return []matcher{func(o object) bool { return slices.Equal(o.names(), parts) }}
	}
	return []matcher{
		func(o object) bool { return o.id == ref },
		func(o object) bool { return o.name == ref },
		s.onlyRunning(func(o object) bool { return o.podName == ref }),
		func(o object) bool { return strings.HasPrefix(o.id, ref) },
	}
}

// onlyRunning narrows a pod's containers to the running ones if there are any.
func (s *snapshot) onlyRunning(in matcher) matcher {
	some := slices.ContainsFunc(s.containers, func(o object) bool { return in(o) && o.running })
	return func(o object) bool { return in(o) && (o.running || !some) }
}

// inPodMatchers returns the interpretations of a pod reference that selects the pod's container.
func (s *snapshot) inPodMatchers(ref string) (matchers []matcher) {
	for _, isPod := range podMatchers(ref) {
		pods := filter(s.pods, isPod)
		matchers = append(matchers, s.onlyRunning(func(o object) bool {
			return slices.ContainsFunc(pods, func(p object) bool { return p.id == o.container.GetPodSandboxId() })
		}))
	}
	return matchers
}

// withoutKind returns NAME for kubectl's pod/NAME.
func withoutKind(ref string) (name string, ok bool) {
	kind, name, ok := strings.Cut(ref, "/")
	return name, ok && slices.Contains([]string{"pod", "pods", "po"}, kind)
}

func podMatchers(ref string) []matcher {
	if namespace, name, ok := strings.Cut(ref, "/"); ok {
		return []matcher{func(o object) bool { return o.namespace == namespace && o.podName == name }}
	}
	return []matcher{
		func(o object) bool { return o.id == ref },
		func(o object) bool { return o.podName == ref },
		func(o object) bool { return strings.HasPrefix(o.id, ref) },
	}
}

func (s *snapshot) find(kind objectKind, q Query) (object, error) {
	all, matchers := s.containers, s.containerMatchers(q.Ref)
	if kind == podKind {
		all, matchers = s.pods, podMatchers(q.Ref)
	} else if q.Container != "" {
		matchers = s.inPodMatchers(q.Ref)
	}
	slices.SortStableFunc(all, func(a, b object) int { // newest first
		return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(b.attempt, a.attempt), cmp.Compare(a.id, b.id))
	})
	if q.Ref == LastRef && len(all) > 0 {
		return s.choose(kind, all[:1], q)
	}
	for i, match := range matchers {
		if found := filter(all, match); len(found) > 0 {
			if i == 0 && found[0].id == q.Ref {
				q.Attempt = nil // a full id determines the attempt
			}
			return s.choose(kind, found, q)
		}
	}
	if name, ok := withoutKind(q.Ref); ok { // tried last, because a pod or a namespace may have such a name
		return s.findWithoutKind(kind, name, q)
	}
	if q.Container != "" {
		return object{}, s.noContainerIn(q)
	}
	return object{}, s.notFound(kind, q)
}

// findWithoutKind resolves kubectl's pod/NAME to the pod or, for a container, to the only container of the pod, or its
// only running container. With Query.Container or a slash in NAME, NAME is resolved as without "pod/".
func (s *snapshot) findWithoutKind(kind objectKind, name string, q Query) (object, error) {
	q.Ref = name
	if kind == containerKind && q.Container == "" && !strings.Contains(name, "/") {
		for _, match := range s.inPodMatchers(name) {
			if found := filter(s.containers, match); len(found) > 0 {
				return s.choose(kind, found, q)
			}
		}
		return object{}, s.notFound(kind, q)
	}
	return s.find(kind, q)
}

// choose selects the newest of the found objects, which all match the reference in one way, such as by name. It considers
// only the attempt q.Attempt or, unless q.Want is NewestAttempt, prefers running objects. It returns an error if the
// remaining objects belong to several containers or pods.
func (s *snapshot) choose(kind objectKind, found []object, q Query) (object, error) {
	isRunning := func(o object) bool { return o.running }
	pool := found
	if q.Attempt != nil {
		pool = filter(found, func(o object) bool { return o.attempt == *q.Attempt })
		if len(pool) == 0 {
			var have []string
			for _, o := range found {
				have = append(have, fmt.Sprint(o.attempt))
			}
			return object{}, &Error{
				Code: codes.NotFound, text: fmt.Sprintf("%s %q has no attempt %d", kind.name, q.Ref, *q.Attempt),
				hint: "there is attempt " + strings.Join(have, ", "),
			}
		}
	} else if running := filter(pool, isRunning); q.Want != NewestAttempt && len(running) > 0 {
		pool = running
	}
	if distinct(pool) > 1 {
		return object{}, s.ambiguous(kind, q, pool)
	}
	// Several pods of one name can run at once. A pod whose predecessor is still ending counts as one; two pods created
	// by hand count as two.
	uids := map[string]bool{}
	running := filter(pool, isRunning)
	for _, o := range running {
		uids[o.podUID] = true
	}
	if len(uids) > 1 {
		return object{}, s.ambiguous(kind, q, running)
	}
	if q.Want == RunningAttempt && !pool[0].running {
		return object{}, s.notRunning(kind, q, pool[0])
	}
	return pool[0], nil
}

// distinct counts containers or pods. All attempts of a container count once, and all sandboxes of a pod.
func distinct(in []object) int {
	seen := map[string]bool{}
	for _, o := range in {
		key := strings.Join(o.names(), "\x00")
		if o.podName == "" {
			key += o.podUID
		}
		seen[key] = true
	}
	return len(seen)
}
