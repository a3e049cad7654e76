package client

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/suggest"
	"github.com/crishim/crishim/internal/kube"
)

// candidateKind is what differs between containers and pods in messages.
type candidateKind struct{ name, verb, running string }

var (
	containerKind = candidateKind{name: "container", verb: "ps -a", running: "running"}
	podKind       = candidateKind{name: "pod", verb: "pods", running: "ready"}
)

// candidate is one container or one sandbox, flattened for matching. Exactly
// one of container and pod is set.
type candidate struct {
	container *runtimeapi.Container
	pod       *runtimeapi.PodSandbox

	id, namespace, podName, podUID, name string
	attempt                              uint32
	created                              int64
	running                              bool
	state                                string
}

// identity is what all attempts of a container, or all sandboxes of a pod, share.
func (c candidate) identity() string {
	return strings.Join([]string{c.namespace, c.podName, c.name}, "\x00")
}

// snapshot is what the runtime has at the moment of a question.
type snapshot struct {
	now        time.Time
	pods       []candidate
	containers []candidate
	sandboxes  map[string]*runtimeapi.PodSandbox
}

func (s *snapshot) setPods(pods []*runtimeapi.PodSandbox) {
	s.sandboxes = make(map[string]*runtimeapi.PodSandbox, len(pods))
	for _, p := range pods {
		s.sandboxes[p.GetId()] = p
		m := p.GetMetadata()
		c := candidate{
			pod: p, id: p.GetId(), namespace: m.GetNamespace(), podName: m.GetName(), podUID: m.GetUid(),
			attempt: m.GetAttempt(), created: p.GetCreatedAt(),
			running: p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
			state:   shortState(p.GetState().String(), "SANDBOX_"),
		}
		if c.podName == "" { // no metadata from the runtime: each is its own
			c.podUID = c.id
		}
		s.pods = append(s.pods, c)
	}
}

func (s *snapshot) setContainers(list []*runtimeapi.Container) {
	for _, ctr := range list {
		c := candidate{
			container: ctr, id: ctr.GetId(), name: ctr.GetMetadata().GetName(), attempt: ctr.GetMetadata().GetAttempt(),
			namespace: ctr.GetLabels()[kube.LabelPodNamespace], podName: ctr.GetLabels()[kube.LabelPodName], podUID: ctr.GetLabels()[kube.LabelPodUID],
			created: ctr.GetCreatedAt(), running: ctr.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING,
			state: shortState(ctr.GetState().String(), "CONTAINER_"),
		}
		if m := s.sandboxes[ctr.GetPodSandboxId()].GetMetadata(); m.GetName() != "" {
			c.namespace, c.podName, c.podUID = m.GetNamespace(), m.GetName(), m.GetUid()
		}
		if c.podName == "" {
			c.podUID = ctr.GetPodSandboxId()
		}
		s.containers = append(s.containers, c)
	}
}

func shortState(s, prefix string) string { return strings.ToLower(strings.TrimPrefix(s, prefix)) }

// containerMatchers are the readings of a reference, the surest first. The
// first reading that anything answers to is the one that counts.
func (s *snapshot) containerMatchers(ref string) []func(candidate) bool {
	parts := strings.Split(ref, "/")
	switch len(parts) {
	case 2:
		return []func(candidate) bool{
			func(c candidate) bool { return c.podName == parts[0] && c.name == parts[1] },
			s.onlyRunning(func(c candidate) bool { return c.namespace == parts[0] && c.podName == parts[1] }),
		}
	case 3:
		return []func(candidate) bool{func(c candidate) bool {
			return c.namespace == parts[0] && c.podName == parts[1] && c.name == parts[2]
		}}
	}
	return []func(candidate) bool{
		func(c candidate) bool { return c.id == ref },
		func(c candidate) bool { return c.name == ref },
		s.onlyRunning(func(c candidate) bool { return c.podName == ref }),
		func(c candidate) bool { return strings.HasPrefix(c.id, ref) },
	}
}

// onlyRunning narrows a pod's containers to the running ones where there are
// any, so that a pod's name stands for the only one that runs.
func (s *snapshot) onlyRunning(in func(candidate) bool) func(candidate) bool {
	some := slices.ContainsFunc(s.containers, func(c candidate) bool { return in(c) && c.running })
	return func(c candidate) bool { return in(c) && (c.running || !some) }
}

func (s *snapshot) podMatchers(ref string) []func(candidate) bool {
	if ns, name, ok := strings.Cut(ref, "/"); ok {
		return []func(candidate) bool{func(c candidate) bool { return c.namespace == ns && c.podName == name }}
	}
	return []func(candidate) bool{
		func(c candidate) bool { return c.id == ref },
		func(c candidate) bool { return c.podName == ref },
		func(c candidate) bool { return strings.HasPrefix(c.id, ref) },
	}
}

// find picks the candidate that a reference stands for.
func (s *snapshot) find(kind candidateKind, matchers []func(candidate) bool, q Query) (candidate, error) {
	all := s.containers
	if kind == podKind {
		all = s.pods
	}
	newestFirst(all)
	if q.Ref == Last {
		if len(all) == 0 {
			return candidate{}, s.notFound(kind, q.Ref)
		}
		return s.choose(kind, all[:1], q)
	}
	for i, match := range matchers {
		var found []candidate
		for _, c := range all {
			if match(c) {
				found = append(found, c)
			}
		}
		if len(found) == 0 {
			continue
		}
		if i == 0 && found[0].id == q.Ref {
			q.Attempt = nil // a full id is exact
		}
		return s.choose(kind, found, q)
	}
	return candidate{}, s.notFound(kind, q.Ref)
}

// choose decides between candidates that one reading of the reference found.
func (s *snapshot) choose(kind candidateKind, found []candidate, q Query) (candidate, error) {
	pool := found
	if q.Attempt != nil {
		pool = keep(found, func(c candidate) bool { return c.attempt == *q.Attempt })
		if len(pool) == 0 {
			return candidate{}, noAttempt(kind, q, found)
		}
	}
	running := keep(pool, func(c candidate) bool { return c.running })
	if q.Attempt == nil && q.Want != Any && len(running) > 0 {
		pool = running
	}
	if distinct(pool) > 1 {
		return candidate{}, s.ambiguous(kind, q.Ref, pool)
	}
	// One name, but several pods of that name can live at once: a pod that
	// was recreated while the old one ends is one, two made by hand are two.
	if live := keep(pool, func(c candidate) bool { return c.running }); distinctUID(live) > 1 {
		return candidate{}, s.ambiguous(kind, q.Ref, live)
	}
	if q.Want == Running && !pool[0].running {
		return candidate{}, s.notRunning(kind, q.Ref, pool[0])
	}
	return pool[0], nil
}

func newestFirst(c []candidate) {
	slices.SortStableFunc(c, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(b.attempt, a.attempt), cmp.Compare(a.id, b.id))
	})
}

func keep(in []candidate, f func(candidate) bool) []candidate {
	var out []candidate
	for _, c := range in {
		if f(c) {
			out = append(out, c)
		}
	}
	return out
}

// distinct counts different containers or pods; attempts of one count once.
func distinct(in []candidate) int {
	seen := map[string]bool{}
	for _, c := range in {
		key := c.identity()
		if c.podName == "" {
			key += c.podUID
		}
		seen[key] = true
	}
	return len(seen)
}

func distinctUID(in []candidate) int {
	seen := map[string]bool{}
	for _, c := range in {
		seen[c.podUID] = true
	}
	return len(seen)
}

// notFound is the error for a reference that nothing answers to. It suggests
// the name that was most likely meant.
func (s *snapshot) notFound(kind candidateKind, ref string) error {
	hint := fmt.Sprintf("`crishim %s` lists them", kind.verb)
	if pods := s.podsFor(kind, ref); len(pods) > 0 {
		hint = fmt.Sprintf("%s is a pod, and has none", clean(ref))
		if slices.ContainsFunc(s.containers, func(c candidate) bool { return c.container.GetPodSandboxId() == pods[0].id }) {
			hint = fmt.Sprintf("%s is a pod; `crishim ps -a --pod %[1]s` lists its containers", clean(ref))
		}
	} else if best := suggest.Closest(ref, s.referencesLike(kind, ref)); best != "" {
		hint = fmt.Sprintf("did you mean %s? %s", clean(best), hint)
	}
	return &Error{Code: codes.NotFound, text: fmt.Sprintf("there is no %s %q", kind.name, ref), hint: hint}
}

// podsFor are the sandboxes that a reference would have stood for where it was
// taken for a container's.
func (s *snapshot) podsFor(kind candidateKind, ref string) []candidate {
	if kind == containerKind && strings.Count(ref, "/") < 2 {
		for _, match := range s.podMatchers(ref) {
			if found := keep(s.pods, match); len(found) > 0 {
				return found
			}
		}
	}
	return nil
}

// referencesLike are the names with as many parts as ref that stand for something.
func (s *snapshot) referencesLike(kind candidateKind, ref string) []string {
	var names []string
	all := s.pods
	if kind == containerKind {
		all = append(slices.Clone(s.containers), s.pods...) // a pod's name stands for its container
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

// ambiguous lists what a reference could mean, with what tells it apart.
func (s *snapshot) ambiguous(kind candidateKind, ref string, found []candidate) error {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	n := uniqueLength(found)
	for _, c := range found {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", clean(c.id[:min(n, len(c.id))]), clean(c.path()), c.state, age(s.now, c.created))
	}
	_ = tw.Flush() // a strings.Builder takes everything
	hint := "give one of these ids"
	if distinct(found) == len(found) {
		hint = fmt.Sprintf("give one of these ids, or a longer name such as %s", clean(found[0].path()))
	}
	return &Error{
		Code: codes.FailedPrecondition, text: fmt.Sprintf("%q is ambiguous: %d %ss match:", ref, len(found), kind.name), list: strings.Split(strings.TrimRight(b.String(), "\n"), "\n"),
		hint: hint,
	}
}

// path is the longest name of a candidate.
func (c candidate) path() string {
	parts := []string{c.namespace, c.podName}
	if c.container != nil {
		parts = append(parts, c.name)
	}
	for len(parts) > 1 && parts[0] == "" {
		parts = parts[1:]
	}
	return strings.Join(parts, "/")
}

// uniqueLength is how much of the ids tells them apart, 13 at least, which
// is what tables show.
func uniqueLength(found []candidate) int {
	n := 13
	for i, a := range found {
		for _, b := range found[i+1:] {
			k := 0
			for k < len(a.id) && k < len(b.id) && a.id[k] == b.id[k] {
				k++
			}
			n = max(n, k+1)
		}
	}
	return n
}

func (s *snapshot) notRunning(kind candidateKind, ref string, c candidate) error {
	hint := ""
	if kind == containerKind && c.state == "created" {
		hint = "`crishim start " + clean(ref) + "` starts it"
	} else if kind == containerKind {
		hint = "`crishim logs " + clean(ref) + "` shows why it ended"
	}
	return &Error{
		Code: codes.FailedPrecondition,
		text: fmt.Sprintf("%s %q is not %s: its state is %s, created %s ago", kind.name, ref, kind.running, c.state, age(s.now, c.created)),
		hint: hint,
	}
}

func noAttempt(kind candidateKind, q Query, found []candidate) error {
	var have []string
	for _, c := range found {
		have = append(have, fmt.Sprint(c.attempt))
	}
	return &Error{
		Code: codes.NotFound,
		text: fmt.Sprintf("%s %q has no attempt %d", kind.name, q.Ref, *q.Attempt),
		hint: "there is attempt " + strings.Join(have, ", "),
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

// clean keeps what a runtime sent from driving the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if isControl(r) || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
