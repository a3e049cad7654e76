package kuberuntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/filelock"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/volume"
)

// GCPolicy limits the dead containers that are kept, like the kubelet's flags.
type GCPolicy struct {
	MinAge          time.Duration // younger containers are kept
	MaxPerContainer int           // dead attempts of one container, -1 for no limit
	MaxContainers   int           // dead containers in all, -1 for no limit
}

// DefaultGCPolicy is the kubelet's default.
func DefaultGCPolicy() GCPolicy { return GCPolicy{MaxPerContainer: 1, MaxContainers: -1} }

// Sources reports which pods are wanted, like the kubelet's podStateProvider.
type Sources struct {
	// Deleted reports whether a pod is no longer wanted. If it is nil, exactly the pods in the runtime are wanted.
	Deleted func(uid string) bool
	// Dir limits the collection to pods that sync created from this directory; "" for all pods.
	Dir string
}

// deleted reports whether a pod is no longer wanted.
func (s Sources) deleted(uid string, inRuntime bool) bool {
	if s.Deleted == nil {
		return !inRuntime
	}
	return s.Deleted(uid)
}

type GarbageItem struct {
	Kind string `json:"kind"` // container, sandbox, log directory, pod directory, pod record, log link, image
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	Why  string `json:"why"`
	Size uint64 `json:"size,omitempty"`

	unknown bool                     // a container in an unknown state is stopped first
	guard   func(func() error) error // calls its argument only if the pod is still lost or the image still unused
	image   *runtimeapi.Image
}

type Garbage struct {
	Items []GarbageItem `json:"items"`
}

// GarbageCollect plans and removes, like the kubelet's containerGC. It continues after a failure.
func (m *Manager) GarbageCollect(ctx context.Context, policy GCPolicy, sources Sources) (*Garbage, error) {
	g, err := m.PlanGarbage(ctx, policy, sources)
	if err != nil {
		return nil, err
	}
	return g, m.Collect(ctx, g)
}

func (m *Manager) PlanGarbage(ctx context.Context, policy GCPolicy, sources Sources) (*Garbage, error) {
	pods, err := m.GetPods(ctx, true)
	if err != nil {
		return nil, err
	}
	if sources.Dir != "" {
		pods = slices.DeleteFunc(pods, func(p *pod.Pod) bool { return m.OwnerOf(ctx, p).Dir != sources.Dir })
	}
	g := &Garbage{Items: deadContainers(pods, policy, sources, m.o.Now())}
	g.Items = append(g.Items, deadSandboxes(pods, g.Items, sources)...)
	directories, err := m.deadDirs(ctx, sources)
	g.Items = append(g.Items, directories...)
	return g, err
}

// Collect removes the planned items that are still unused, and expired back-offs. It continues after a failure.
func (m *Manager) Collect(ctx context.Context, g *Garbage) error {
	var errs []error
	for _, item := range g.Items {
		if _, err := m.CollectItem(ctx, item); err != nil {
			errs = append(errs, err)
		}
	}
	m.backOff.collect(m.o.Now())
	m.imageBackOff.collect(m.o.Now())
	return errors.Join(errs...)
}

// CollectItem removes one planned item, and reports whether it is gone. It keeps items that are in use again.
func (m *Manager) CollectItem(ctx context.Context, item GarbageItem) (gone bool, err error) {
	remove := func() error {
		gone = true
		return m.removeItem(ctx, item)
	}
	if item.guard != nil {
		err = item.guard(remove)
	} else {
		err = remove()
	}
	if err != nil {
		return false, fmt.Errorf("remove %s %s: %w", item.Kind, item.ID, err)
	}
	return gone, nil
}

func (m *Manager) removeItem(ctx context.Context, item GarbageItem) error {
	switch item.Kind {
	case "container":
		if item.unknown {
			if _, err := m.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: item.ID, Timeout: minGrace}); err != nil {
				return err
			}
		}
		return m.DeleteContainer(ctx, item.ID)
	case "sandbox":
		// A second stop releases the network of a sandbox that died by itself.
		if _, err := m.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: item.ID}); err != nil {
			return err
		}
		_, err := m.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: item.ID})
		return err
	case "image":
		return m.RemoveImage(ctx, item.ID)
	case "pod directory", "pod record":
		return m.removeDirs(ctx, filepath.Base(item.ID))
	}
	return volume.RemoveAll(item.ID)
}

// unit is a container of a pod with its dead attempts, the newest first, like the kubelet's evictUnit.
type unit struct {
	pod  *pod.Pod
	name string
	dead []*runtimeapi.Container
}

// deadContainers picks containers by the policy, like the kubelet's evictContainers.
func deadContainers(pods []*pod.Pod, policy GCPolicy, sources Sources, now time.Time) []GarbageItem {
	units := deadUnits(pods, policy.MinAge, now)
	var out []GarbageItem
	evict := func(u *unit, keep int, why string) {
		for len(u.dead) > keep {
			last := u.dead[len(u.dead)-1]
			u.dead = u.dead[:len(u.dead)-1]
			out = append(out, GarbageItem{
				Kind: "container", ID: last.GetId(), Name: u.pod.FullName() + "/" + u.name, Why: why,
				unknown: last.GetState() == runtimeapi.ContainerState_CONTAINER_UNKNOWN,
			})
		}
	}
	units = slices.DeleteFunc(units, func(u *unit) bool {
		deleted := sources.deleted(u.pod.UID, true)
		if deleted {
			evict(u, 0, "its pod is gone")
		}
		return deleted
	})
	total := 0
	for _, u := range units {
		if policy.MaxPerContainer >= 0 {
			evict(u, policy.MaxPerContainer, fmt.Sprintf("more than %d dead of this container", policy.MaxPerContainer))
		}
		total += len(u.dead)
	}
	if policy.MaxContainers < 0 || total <= policy.MaxContainers {
		return out
	}
	why := fmt.Sprintf("more than %d dead containers", policy.MaxContainers)
	each := max(policy.MaxContainers/max(len(units), 1), 1)
	total = 0
	for _, u := range units {
		evict(u, each, why)
		total += len(u.dead)
	}
	for ; total > policy.MaxContainers; total-- {
		oldest := slices.MinFunc(slices.DeleteFunc(slices.Clone(units), func(u *unit) bool { return len(u.dead) == 0 }), func(a, b *unit) int {
			return cmp.Compare(a.dead[len(a.dead)-1].GetCreatedAt(), b.dead[len(b.dead)-1].GetCreatedAt())
		})
		evict(oldest, len(oldest.dead)-1, why)
	}
	return out
}

// startTime is the longest time between creation and start of a container: StartContainer has a timeout of two minutes.
const startTime = 2 * time.Minute

// deadUnits groups dead containers by pod and name. A dead container does not run and was created at least minAge ago. A
// container in the state created may be about to start, so it is dead only after startTime.
func deadUnits(pods []*pod.Pod, minAge time.Duration, now time.Time) []*unit {
	var out []*unit
	for _, p := range pods {
		byName := map[string]*unit{}
		for _, c := range p.Containers {
			age := minAge
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED {
				age = max(minAge, startTime)
			}
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING || c.GetCreatedAt() > now.Add(-age).UnixNano() {
				continue
			}
			name := c.GetMetadata().GetName()
			if byName[name] == nil {
				byName[name] = &unit{pod: p, name: name}
				out = append(out, byName[name])
			}
			byName[name].dead = append(byName[name].dead, c)
		}
	}
	for _, u := range out {
		slices.SortStableFunc(u.dead, func(a, b *runtimeapi.Container) int { return cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()) })
	}
	return out
}

// deadSandboxes picks sandboxes that are not ready and whose containers are all among the given ones, which are removed
// first. It keeps the newest sandbox of a wanted pod, like the kubelet's evictSandboxes.
func deadSandboxes(pods []*pod.Pod, containers []GarbageItem, sources Sources) []GarbageItem {
	gone := map[string]bool{}
	for _, item := range containers {
		gone[item.ID] = true
	}
	var out []GarbageItem
	for _, p := range pods {
		used := map[string]bool{}
		for _, c := range p.Containers {
			if !gone[c.GetId()] {
				used[c.GetPodSandboxId()] = true
			}
		}
		sandboxes := slices.Clone(p.Sandboxes)
		slices.SortStableFunc(sandboxes, func(a, b *runtimeapi.PodSandbox) int { return cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()) })
		for i, s := range sandboxes {
			if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY || used[s.GetId()] {
				continue
			}
			item := GarbageItem{Kind: "sandbox", ID: s.GetId(), Name: p.FullName(), Why: "a newer sandbox of its pod is there"}
			if sources.deleted(p.UID, true) {
				item.Why = "its pod is gone"
			} else if i == 0 {
				continue
			}
			out = append(out, item)
		}
	}
	return out
}

// deadDirs picks directories of pods that the runtime does not know, and dangling log links, like the kubelet's
// evictPodLogsDirectories. It skips pods of other runtimes, whose logs are in the same directories.
func (m *Manager) deadDirs(ctx context.Context, sources Sources) ([]GarbageItem, error) {
	uids, err := listDir(m.o.Dirs.Pods())
	if err != nil {
		return nil, err
	}
	var out []GarbageItem
	for _, uid := range uids {
		record, own := m.ownRecord(ctx, uid)
		if !own || !sources.deleted(uid, false) {
			continue
		}
		guard := func(do func() error) error { return m.whenLost(ctx, record, sources, do) }
		item := GarbageItem{Name: FullName(record.Pod), Why: "its pod is gone", guard: guard}
		if err := guard(func() error {
			logs := m.o.Dirs.PodLogs(record.Pod)
			item.Kind, item.ID = "pod directory", m.o.Dirs.Pod(uid)
			if len(record.Runtimes) > 1 {
				item.Kind, item.Why = "pod record", "its pod is gone, another runtime has one"
			} else if _, err := os.Stat(logs); err == nil {
				out = append(out, GarbageItem{Kind: "log directory", ID: logs, Name: item.Name, Why: item.Why, guard: guard})
			}
			out = append(out, item)
			return nil
		}); err != nil {
			return out, err
		}
	}
	if sources.Dir != "" {
		return out, nil // the links may belong to pods of other directories
	}
	links, err := m.deadLinks()
	return append(out, links...), err
}

// whenLost calls do if no process works on a pod and the runtime has no object of the pod. A pod that is being created
// has a directory before it has a sandbox.
func (m *Manager) whenLost(ctx context.Context, record *Record, sources Sources, do func() error) (failed error) {
	p, uid := record.Pod, string(record.Pod.UID)
	directory := p.Annotations[pod.DirAnnotation]
	switch {
	case sources.Dir != "":
		if directory != sources.Dir {
			return nil
		}
	case directory != "":
		if DirInUse(m.o.Dirs, directory) || m.mayComeBack(record) {
			return nil
		}
	default:
		key, err := m.podLockKey(ctx, p.Namespace, p.Name)
		if err != nil {
			return err
		}
		path, err := m.lockPath(key)
		if err != nil {
			return err
		}
		lock, err := filelock.Try(path)
		if lock == nil {
			return err
		}
		defer func() { failed = errors.Join(failed, lock.Remove()) }()
	}
	sandboxes, containers, err := m.labelled(ctx, uid)
	if err != nil || len(sandboxes)+len(containers) > 0 || !sources.deleted(uid, false) {
		return err
	}
	return do()
}

// mayComeBack reports whether sync would run a finished pod again after its record is removed.
func (m *Manager) mayComeBack(record *Record) bool {
	p := record.Pod
	if state, err := ReadState(m.o.Dirs, string(p.UID)); err == nil && !state.final() {
		return false
	}
	directory := p.Annotations[pod.DirAnnotation]
	if _, err := os.ReadDir(directory); err != nil {
		return true // the directory may be unmounted
	}
	_, err := os.Stat(filepath.Join(directory, p.Annotations[pod.FileAnnotation]))
	return err == nil
}

func (m *Manager) deadLinks() ([]GarbageItem, error) {
	names, err := listDir(m.o.Dirs.LegacyLogs)
	if err != nil {
		return nil, err
	}
	var out []GarbageItem
	for _, name := range names {
		path := filepath.Join(m.o.Dirs.LegacyLogs, name)
		target, err := os.Readlink(path) // fails if it is not a link
		if err != nil || !strings.HasPrefix(target, m.o.Dirs.Logs+string(filepath.Separator)) {
			continue
		}
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			out = append(out, GarbageItem{Kind: "log link", ID: path, Why: "its log is gone"})
		}
	}
	return out, nil
}

func listDir(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}
