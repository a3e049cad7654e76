package client

import (
	"cmp"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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

// world is what the runtime has at the moment of a question.
type world struct {
	now        time.Time
	pods       []candidate
	containers []candidate
	sandboxes  map[string]*runtimeapi.PodSandbox
}

// Labels that the kubelet puts on containers; the sandbox's metadata goes
// before them, because containers made by hand have none.
const (
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
	labelPodUID       = "io.kubernetes.pod.uid"
)

func (w *world) setPods(pods []*runtimeapi.PodSandbox) {
	w.sandboxes = make(map[string]*runtimeapi.PodSandbox, len(pods))
	for _, p := range pods {
		w.sandboxes[p.GetId()] = p
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
		w.pods = append(w.pods, c)
	}
}

func (w *world) setContainers(list []*runtimeapi.Container) {
	for _, ctr := range list {
		c := candidate{
			container: ctr, id: ctr.GetId(), name: ctr.GetMetadata().GetName(), attempt: ctr.GetMetadata().GetAttempt(),
			namespace: ctr.GetLabels()[labelPodNamespace], podName: ctr.GetLabels()[labelPodName], podUID: ctr.GetLabels()[labelPodUID],
			created: ctr.GetCreatedAt(), running: ctr.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING,
			state: shortState(ctr.GetState().String(), "CONTAINER_"),
		}
		if m := w.sandboxes[ctr.GetPodSandboxId()].GetMetadata(); m.GetName() != "" {
			c.namespace, c.podName, c.podUID = m.GetNamespace(), m.GetName(), m.GetUid()
		}
		if c.podName == "" {
			c.podUID = ctr.GetPodSandboxId()
		}
		w.containers = append(w.containers, c)
	}
}

func shortState(s, prefix string) string { return strings.ToLower(strings.TrimPrefix(s, prefix)) }

// containerTiers are the readings of a reference, the surest first. The
// first reading that anything answers to is the one that counts.
func (w *world) containerTiers(ref string) []func(candidate) bool {
	parts := strings.Split(ref, "/")
	switch len(parts) {
	case 2:
		return []func(candidate) bool{
			func(c candidate) bool { return c.podName == parts[0] && c.name == parts[1] },
			w.onlyRunning(func(c candidate) bool { return c.namespace == parts[0] && c.podName == parts[1] }),
		}
	case 3:
		return []func(candidate) bool{func(c candidate) bool {
			return c.namespace == parts[0] && c.podName == parts[1] && c.name == parts[2]
		}}
	}
	return []func(candidate) bool{
		func(c candidate) bool { return c.id == ref },
		func(c candidate) bool { return c.name == ref },
		w.onlyRunning(func(c candidate) bool { return c.podName == ref }),
		func(c candidate) bool { return strings.HasPrefix(c.id, ref) },
	}
}

// onlyRunning narrows a pod's containers to the running ones where there are
// any, so that a pod's name stands for the only one that runs.
func (w *world) onlyRunning(in func(candidate) bool) func(candidate) bool {
	some := slices.ContainsFunc(w.containers, func(c candidate) bool { return in(c) && c.running })
	return func(c candidate) bool { return in(c) && (c.running || !some) }
}

func (w *world) podTiers(ref string) []func(candidate) bool {
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
func (w *world) find(kind candidateKind, tiers []func(candidate) bool, q Query) (candidate, error) {
	all := w.containers
	if kind == podKind {
		all = w.pods
	}
	newestFirst(all)
	if q.Ref == Last {
		if len(all) == 0 {
			return candidate{}, w.notFound(kind, q.Ref)
		}
		return w.settle(kind, all[:1], q)
	}
	for i, match := range tiers {
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
		return w.settle(kind, found, q)
	}
	return candidate{}, w.notFound(kind, q.Ref)
}

// settle decides between candidates that one reading of the reference found.
func (w *world) settle(kind candidateKind, found []candidate, q Query) (candidate, error) {
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
		return candidate{}, w.ambiguous(kind, q.Ref, pool)
	}
	// One name, but several pods of that name can live at once: a pod that
	// was made anew while the old one ends is one, two made by hand are two.
	if live := keep(pool, func(c candidate) bool { return c.running }); distinctUID(live) > 1 {
		return candidate{}, w.ambiguous(kind, q.Ref, live)
	}
	if q.Want == Running && q.Attempt == nil && !pool[0].running || q.Want == Running && q.Attempt != nil && !pool[0].running {
		return candidate{}, w.notRunning(kind, q.Ref, pool[0])
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
