package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/suggest"
	"github.com/crishim/crishim/internal/kube"
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
	// Namespace leaves out what is in others.
	Namespace string
	// Container is the name of a container; Ref is then its pod.
	Container string
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
	s, err := c.snapshotFor(ctx, q)
	if err != nil {
		return nil, err
	}
	found, err := s.within(q).find(containerKind, q)
	return found.container, withSkipped(err, c.runtime.skipped())
}

// Pod finds the pod that a reference stands for: full id, name,
// namespace/name or a unique prefix of an id, tried in that order.
func (c *Conn) Pod(ctx context.Context, ref string, want Want) (*runtimeapi.PodSandbox, error) {
	return c.FindPod(ctx, Query{Ref: ref, Want: want})
}

// FindPod is Pod with a query.
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

// PodOf is FindPod for what changes nothing: the pod may be named by one of its containers, as
// pod/container or namespace/pod/container.
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

// ContainersOf lists the containers of a pod, in whichever of its sandboxes.
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

// AttemptsOf lists the containers of one name in a pod: a runtime tells them apart by their attempt alone.
func (c *Conn) AttemptsOf(ctx context.Context, pod *runtimeapi.PodSandbox, name string) ([]*runtimeapi.Container, error) {
	all, err := c.ContainersOf(ctx, pod)
	return slices.DeleteFunc(all, func(c *runtimeapi.Container) bool { return c.GetMetadata().GetName() != name }), err
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
func (c *Conn) snapshotFor(ctx context.Context, q Query) (*snapshot, error) {
	if !IsFullID(q.Ref) || q.Namespace != "" || q.Container != "" {
		return c.snapshot(ctx, true)
	}
	res, err := c.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: q.Ref}})
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

// objectKind is what differs between containers and pods in references and messages.
type objectKind struct {
	name, list, running string
	parts               int // of a reference, at most
	forms               string
}

var (
	containerKind = objectKind{"container", "ps -a", "running", 3, "an id, a name, pod/container or namespace/pod/container"}
	podKind       = objectKind{"pod", "pods", "ready", 2, "an id, a name or namespace/name"}
)

// object is one container or one sandbox, flattened for matching. Exactly
// one of container and pod is set.
type object struct {
	container *runtimeapi.Container
	pod       *runtimeapi.PodSandbox

	id, namespace, podName, podUID, name string
	attempt                              uint32
	created                              int64
	running                              bool
	state                                string
}

// names are the parts of the longest name.
func (o object) names() []string {
	if o.container != nil {
		return []string{o.namespace, o.podName, o.name}
	}
	return []string{o.namespace, o.podName}
}

func (o object) path() string { return strings.TrimLeft(strings.Join(o.names(), "/"), "/") }

// snapshot is what the runtime has at the moment of a question.
type snapshot struct {
	now        time.Time
	pods       []object
	containers []object
	sandboxes  map[string]*runtimeapi.PodSandbox
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
		if o.podName == "" { // no metadata from the runtime: each is its own
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

// within is the part of a snapshot that a query is about.
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

func shortState(s, prefix string) string { return strings.ToLower(strings.TrimPrefix(s, prefix)) }

type matcher func(object) bool

// containerMatchers are the readings of a reference, the surest first. The
// first one that matches anything counts.
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

// onlyRunning narrows a pod's containers to the running ones where there are
// any, so that a pod's name stands for the only one that runs.
func (s *snapshot) onlyRunning(in matcher) matcher {
	some := slices.ContainsFunc(s.containers, func(o object) bool { return in(o) && o.running })
	return func(o object) bool { return in(o) && (o.running || !some) }
}

// inPodMatchers are the readings of the reference of a pod whose container is wanted.
func (s *snapshot) inPodMatchers(ref string) (matchers []matcher) {
	for _, isPod := range podMatchers(ref) {
		pods := filter(s.pods, isPod)
		matchers = append(matchers, s.onlyRunning(func(o object) bool {
			return slices.ContainsFunc(pods, func(p object) bool { return p.id == o.container.GetPodSandboxId() })
		}))
	}
	return matchers
}

// withoutKind is a reference such as kubectl's pod/NAME without the kind.
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

// find returns the object that a reference stands for.
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
	if q.Ref == Last && len(all) > 0 {
		return s.choose(kind, all[:1], q)
	}
	for i, match := range matchers {
		if found := filter(all, match); len(found) > 0 {
			if i == 0 && found[0].id == q.Ref {
				q.Attempt = nil // a full id is exact
			}
			return s.choose(kind, found, q)
		}
	}
	if name, ok := withoutKind(q.Ref); ok { // not before: a pod or a namespace may have such a name
		return s.findWithoutKind(kind, name, q)
	}
	if q.Container != "" {
		return object{}, s.noContainerIn(q)
	}
	return object{}, s.notFound(kind, q.Ref)
}

// findWithoutKind finds what pod/NAME stands for: the pod, or the container that a pod's name
// stands for, and none that has the name itself.
func (s *snapshot) findWithoutKind(kind objectKind, name string, q Query) (object, error) {
	q.Ref = name
	if kind == containerKind && q.Container == "" && !strings.Contains(name, "/") {
		for _, match := range s.inPodMatchers(name) {
			if found := filter(s.containers, match); len(found) > 0 {
				return s.choose(kind, found, q)
			}
		}
		return object{}, s.notFound(kind, name)
	}
	return s.find(kind, q)
}

// noContainerIn is the error for a pod that has no container of the name that was asked for.
func (s *snapshot) noContainerIn(q Query) error {
	hint := "`crishim pods` lists pods"
	if len(s.podsFor(containerKind, q.Ref)) > 0 {
		hint = fmt.Sprintf("`crishim ps -a --pod %s` lists its containers", clean(q.Ref))
	}
	return &Error{Code: codes.NotFound, text: fmt.Sprintf("there is no container %q in a pod %q", q.Container, q.Ref), hint: hint}
}

// choose decides between objects that one reading of the reference found.
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
	} else if running := filter(pool, isRunning); q.Want != Any && len(running) > 0 {
		pool = running
	}
	if distinct(pool) > 1 {
		return object{}, s.ambiguous(kind, q.Ref, pool)
	}
	// One name, but several pods of that name can live at once: a pod that
	// was recreated while the old one ends is one, two made by hand are two.
	uids := map[string]bool{}
	running := filter(pool, isRunning)
	for _, o := range running {
		uids[o.podUID] = true
	}
	if len(uids) > 1 {
		return object{}, s.ambiguous(kind, q.Ref, running)
	}
	if q.Want == Running && !pool[0].running {
		return object{}, s.notRunning(kind, q.Ref, pool[0])
	}
	return pool[0], nil
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

// distinct counts different containers or pods; the attempts of a container and the
// sandboxes of a pod count once.
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

// notFound is the error for a reference that nothing matches. It suggests
// the name that was most likely meant.
func (s *snapshot) notFound(kind objectKind, ref string) error {
	hint := fmt.Sprintf("`crishim %s` lists them", kind.list)
	if pods := s.podsFor(kind, ref); len(pods) > 0 {
		hint = fmt.Sprintf("%s is a pod, and has none: `crishim describe %[1]s` shows why", clean(ref))
		if slices.ContainsFunc(s.containers, func(o object) bool { return o.container.GetPodSandboxId() == pods[0].id }) {
			hint = fmt.Sprintf("%s is a pod; `crishim ps -a --pod %[1]s` lists its containers", clean(ref))
		}
	} else if best := suggest.Closest(ref, s.referencesLike(kind, ref)); best != "" {
		hint = fmt.Sprintf("did you mean %s? %s", clean(best), hint)
	}
	return &Error{Code: codes.NotFound, text: fmt.Sprintf("there is no %s %q", kind.name, ref), hint: hint}
}

// podsFor are the sandboxes that a reference would have stood for where it was
// taken for a container's.
func (s *snapshot) podsFor(kind objectKind, ref string) []object {
	if kind == containerKind && strings.Count(ref, "/") < 2 {
		for _, match := range podMatchers(ref) {
			if found := filter(s.pods, match); len(found) > 0 {
				return found
			}
		}
	}
	return nil
}

// referencesLike are the names with as many parts as ref that stand for something.
func (s *snapshot) referencesLike(kind objectKind, ref string) []string {
	all := s.pods
	if kind == containerKind {
		all = append(slices.Clone(s.containers), s.pods...) // a pod's name stands for its container
	}
	var references []string
	for _, o := range all {
		parts := o.names()
		if n := strings.Count(ref, "/") + 1; n <= len(parts) && parts[len(parts)-n] != "" && parts[len(parts)-1] != "" {
			references = append(references, strings.Join(parts[len(parts)-n:], "/"))
		}
	}
	return references
}

// ambiguous lists what a reference could mean, with what tells it apart.
func (s *snapshot) ambiguous(kind objectKind, ref string, found []object) error {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	n := uniqueLength(found)
	for _, o := range found {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", clean(o.id[:min(n, len(o.id))]), clean(o.path()), o.state, age(s.now, o.created))
	}
	_ = tw.Flush() // a strings.Builder takes everything
	hint := "give one of these ids"
	if distinct(found) == len(found) {
		hint += ", or a longer name such as " + clean(found[0].path())
	}
	return &Error{
		Code: codes.FailedPrecondition, text: fmt.Sprintf("%q is ambiguous: %d %ss match:", ref, len(found), kind.name),
		list: strings.Split(strings.TrimRight(b.String(), "\n"), "\n"), hint: hint,
	}
}

// uniqueLength is how much of the ids tells them apart, 13 at least, which
// is what tables show.
func uniqueLength(found []object) int {
	n := 13
	for i, a := range found {
		for _, b := range found[i+1:] {
			for strings.HasPrefix(b.id, a.id[:min(n, len(a.id))]) && n <= len(a.id) {
				n++
			}
		}
	}
	return n
}

func (s *snapshot) notRunning(kind objectKind, ref string, o object) error {
	hint := ""
	if kind == containerKind && o.state == "created" {
		hint = "`crishim start " + clean(ref) + "` starts it"
	} else if kind == containerKind {
		hint = "`crishim logs " + clean(ref) + "` shows its output"
		if o.podName != "" {
			hint = "`crishim describe " + clean(strings.TrimPrefix(o.namespace+"/"+o.podName, "default/")) + "` shows why it ended, " + hint
		}
	}
	return &Error{
		Code: codes.FailedPrecondition,
		text: fmt.Sprintf("%s %q is not %s: its state is %s, created %s ago", kind.name, ref, kind.running, o.state, age(s.now, o.created)),
		hint: hint,
	}
}

// age is a short duration such as 5m or 3d.
func age(now time.Time, created int64) string {
	if created <= 0 {
		return "?"
	}
	switch d := now.Sub(time.Unix(0, created)); {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
