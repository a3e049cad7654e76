package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/output"
)

// lists has the pods and containers of the node, as a message to the model.
type lists struct {
	Pods       []*runtimeapi.PodSandbox
	Containers []*runtimeapi.Container
	// Known has details that are not in the lists, and the time for ages.
	Known output.Options
}

// nodeStats has the counters of all containers at one time, as a message to the model.
type nodeStats struct {
	At     time.Time
	DiskAt time.Time // time of the disk counters, which are read less often
	Usages []output.Usage
	// Err says why Usages is empty.
	Err string
}

// lost tells the model that the runtime does not answer.
type lost struct{ Why string }

// unknown stands for a figure that the runtime does not have.
const unknown = -1

// figures are the resource figures of a row. Rates are in bytes per second.
type figures struct {
	cpu                          float64
	memory, limit, pids          int64
	netIn, netOut, reads, writes float64
}

var noFigures = figures{cpu: unknown, memory: unknown, pids: unknown, netIn: unknown, netOut: unknown, reads: unknown, writes: unknown}

func (f figures) net() float64  { return plus(f.netIn, f.netOut) }
func (f figures) disk() float64 { return plus(f.reads, f.writes) }

// plus adds two figures; an unknown figure does not count.
func plus[N int64 | float64](a, b N) N {
	switch {
	case a < 0:
		return b
	case b < 0:
		return a
	}
	return a + b
}

// add adds the figures of a container to its pod. Containers of a pod share its network, so network rates are not summed.
func (f figures) add(c figures) figures {
	f.cpu, f.memory, f.pids = plus(f.cpu, c.cpu), plus(f.memory, c.memory), plus(f.pids, c.pids)
	f.reads, f.writes = plus(f.reads, c.reads), plus(f.writes, c.writes)
	f.netIn, f.netOut = max(f.netIn, c.netIn), max(f.netOut, c.netOut)
	if f.limit >= 0 && c.limit > 0 {
		f.limit += c.limit
	} else {
		f.limit = unknown // a container without a limit may use all memory
	}
	return f
}

// rate returns the growth of a counter per second.
func rate(before, after int64, elapsed time.Duration) float64 {
	if before < 0 || after < before || elapsed <= 0 {
		return unknown
	}
	return float64(after-before) / elapsed.Seconds()
}

// figuresOf computes the figures of a container from its counters. before has the previous counters (nil for a new
// container), and then has the previous figures. elapsed is the time between the two sets of counters. Disk counters are
// read less often: ofDisks is the time between them. If they were not read again, ofDisks is 0 and the previous disk
// rates remain.
func figuresOf(before *output.Usage, then figures, u output.Usage, elapsed, ofDisks time.Duration) figures {
	f := noFigures
	f.cpu, f.memory, f.limit, f.pids = u.CPUPercent, u.Memory, u.MemoryLimit, u.Pids
	if before == nil {
		return f
	}
	f.netIn, f.netOut = rate(before.NetworkIn, u.NetworkIn, elapsed), rate(before.NetworkOut, u.NetworkOut, elapsed)
	f.reads, f.writes = then.reads, then.writes
	if ofDisks > 0 {
		f.reads, f.writes = rate(before.BlockRead, u.BlockRead, ofDisks), rate(before.BlockWrite, u.BlockWrite, ofDisks)
	}
	return f
}

// node is a pod or a container of the tree.
type node struct {
	id      string // id of the sandbox or the container
	pod     string // the sandbox's id
	look    output.Look
	figures figures
	running bool
	members []*node // of a pod
}

func (n *node) isPod() bool { return n.pod == n.id }

// name returns the display name.
func (n *node) name() string {
	return strings.Trim(strings.Join([]string{n.look.Namespace, n.look.Pod, n.look.Name}, "/"), "/")
}

// treeOf puts the newest attempt of each container below its pod.
//
// Ids that begin with a dash are dropped: keys put ids into command lines, where such an id would be a flag. Only a
// hostile runtime returns such ids.
func treeOf(l lists, of map[string]figures) []*node {
	l.Pods = slices.DeleteFunc(slices.Clone(l.Pods), func(p *runtimeapi.PodSandbox) bool { return strings.HasPrefix(p.GetId(), "-") })
	l.Containers = slices.DeleteFunc(slices.Clone(l.Containers), func(c *runtimeapi.Container) bool {
		return strings.HasPrefix(c.GetId(), "-") || strings.HasPrefix(c.GetPodSandboxId(), "-")
	})
	pods := map[string]*node{}
	var tree []*node
	for _, p := range l.Pods {
		n := &node{id: p.GetId(), pod: p.GetId(), look: output.PodLook(p, l.Known), figures: noFigures, running: p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY}
		pods[n.id] = n
		tree = append(tree, n)
	}
	newest := map[[2]string]*runtimeapi.Container{}
	for _, c := range l.Containers {
		key := [2]string{c.GetPodSandboxId(), c.GetMetadata().GetName()}
		if had := newest[key]; had == nil || cmp.Or(cmp.Compare(had.GetMetadata().GetAttempt(), c.GetMetadata().GetAttempt()), cmp.Compare(had.GetCreatedAt(), c.GetCreatedAt())) < 0 {
			newest[key] = c
		}
	}
	for _, c := range l.Containers {
		if newest[[2]string{c.GetPodSandboxId(), c.GetMetadata().GetName()}] != c {
			continue
		}
		n := &node{id: c.GetId(), pod: c.GetPodSandboxId(), look: output.ContainerLook(c, l.Known), figures: noFigures, running: c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING}
		pod := pods[n.pod]
		if pod == nil { // its sandbox is gone, or was created between the two lists
			pod = &node{id: n.pod, pod: n.pod, look: output.Look{Namespace: n.look.Namespace, Pod: n.look.Pod, State: "Unknown", Tone: output.Warn, Age: "-"}, figures: noFigures}
			pods[n.pod] = pod
			tree = append(tree, pod)
		}
		if f, ok := of[n.id]; ok && n.running {
			n.figures = f
			pod.figures = pod.figures.add(f)
		}
		pod.members = append(pod.members, n)
	}
	return tree
}

// orders are the sort orders of the tree. The first is the default.
var orders = []struct {
	name    string
	compare func(a, b *node) int
}{
	{"cpu", func(a, b *node) int { return cmp.Compare(b.figures.cpu, a.figures.cpu) }},
	{"mem", func(a, b *node) int { return cmp.Compare(b.figures.memory, a.figures.memory) }},
	{"net", func(a, b *node) int { return cmp.Compare(b.figures.net(), a.figures.net()) }},
	{"disk", func(a, b *node) int { return cmp.Compare(b.figures.disk(), a.figures.disk()) }},
	{"restarts", func(a, b *node) int { return cmp.Compare(b.look.Restarts, a.look.Restarts) }},
	{"age", func(a, b *node) int { return cmp.Compare(b.look.Created, a.look.Created) }},
	{"name", func(*node, *node) int { return 0 }},
}

// Orders returns the names of the sort orders.
func Orders() []string {
	var names []string
	for _, o := range orders {
		names = append(names, o.name)
	}
	return names
}

// sortTree sorts pods, and the containers of each pod, by the given order, then by name and id. held maps the ids of
// rows to positions: these rows come first and keep their order.
func sortTree(tree []*node, order int, reverse bool, held map[string]int) {
	place := func(n *node) int {
		if at, ok := held[n.id]; ok {
			return at
		}
		return len(held)
	}
	compare := func(a, b *node) int {
		if by := cmp.Compare(place(a), place(b)); by != 0 {
			return by
		}
		by := orders[order].compare(a, b)
		byName := cmp.Or(strings.Compare(a.name(), b.name()), strings.Compare(a.id, b.id))
		if reverse && by == 0 && orders[order].name == "name" {
			return -byName
		}
		if reverse {
			by = -by
		}
		return cmp.Or(by, byName)
	}
	slices.SortFunc(tree, compare)
	for _, pod := range tree {
		slices.SortFunc(pod.members, compare)
	}
}

// visible returns the rows of the tree. A matching pod is shown with all of its containers, any other pod only with
// matching containers. A filter unfolds pods.
func visible(tree []*node, filter string, folded map[string]bool) (rows []*node) {
	filter = strings.ToLower(filter)
	matches := func(n *node) bool {
		return strings.Contains(strings.ToLower(n.name()+" "+n.look.State+" "+n.look.Image), filter)
	}
	for _, pod := range tree {
		members := pod.members
		if !matches(pod) {
			if members = slices.DeleteFunc(slices.Clone(members), func(n *node) bool { return !matches(n) }); len(members) == 0 {
				continue
			}
		}
		rows = append(rows, pod)
		if filter != "" || !folded[pod.id] {
			rows = append(rows, members...)
		}
	}
	return rows
}

// history is a ring of the samples of one row, for plots.
type history struct {
	ring  []point
	taken int // number of samples so far
	seen  bool
}

// point is one sample of a row, with a value for each of its plots.
type point struct {
	at                     time.Time
	cpu, memory, net, disk float32
}

// historySize is how many samples are kept: five minutes at the shortest default interval.
const historySize = 150

func (h *history) add(at time.Time, f figures) {
	p := point{at, float32(f.cpu), float32(f.memory), float32(f.net()), float32(f.disk())}
	h.seen = true
	if len(h.ring) < historySize {
		h.ring = append(h.ring, p)
	} else {
		h.ring[h.taken%historySize] = p
	}
	h.taken++
}

// span returns the time from the first sample to the last.
func (h *history) span() time.Duration {
	if h == nil || h.taken == 0 {
		return 0
	}
	return h.ring[(h.taken-1)%len(h.ring)].at.Sub(h.ring[(h.taken-len(h.ring))%len(h.ring)].at)
}

// each calls f for all samples, the oldest first, with their numbers.
func (h *history) each(f func(number int, p point)) {
	if h == nil {
		return
	}
	for n := h.taken - len(h.ring); n < h.taken; n++ {
		f(n, h.ring[n%len(h.ring)])
	}
}
