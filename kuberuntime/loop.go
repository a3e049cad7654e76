package kuberuntime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/filelock"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type LoopOptions struct {
	Dir string
	// Manifests are the options for reading the manifests of Dir.
	Manifests manifest.Options
	// Problem is called when a problem begins or its text changes, and with nil when it ends. The subject is the
	// directory, the manifests, the names of pods, the runtime, its network, or a periodic task.
	Problem func(what string, err error)
	GC      GCPolicy
	Images  ImagePolicy
	Logs    LogPolicy
}

// The kubelet's periods for the work of the loop.
const (
	relistPeriod = time.Second
	statusPeriod = 5 * time.Second
	logPeriod    = 10 * time.Second
	gcPeriod     = time.Minute
	imagePeriod  = 5 * time.Minute
)

// Loop manages the pods of a directory: static pods without a kubelet. There are no mirror pods, as there is no
// API server.
type Loop struct {
	m         *Manager
	o         LoopOptions
	directory *directory
	lock      *filelock.Lock
	workers   map[string]*worker
	listed    map[string]string // fingerprints of the pods in the last list
	checked   time.Time         // when the runtime was last asked whether it is ready
	state     runtimeState
	images    imageHistory
	invalid   []byte // list of invalid manifests as last written
	origin    []byte // content of originFile as last written
	fresh     bool   // changed manifests were read that the workers do not have yet
	wg        sync.WaitGroup

	// live has the uids of all pods that are wanted, have a worker or are in the runtime. It is nil until the directory was
	// read completely.
	live atomic.Pointer[map[string]bool]

	mu       sync.Mutex        // guards reported, and serializes the calls of Problem
	reported map[string]string // last text of each problem, "" after its end
}

// runtimeState records whether the runtime and its network are ready, like the kubelet's runtimeState.
type runtimeState struct{ noRuntime, noNetwork atomic.Bool }

// blocks reports whether a pod has to wait. A pod in the host's network does not need the pod network.
func (s *runtimeState) blocks(hostNetwork bool) bool {
	return s.noRuntime.Load() || s.noNetwork.Load() && !hostNetwork
}

// NewLoop returns a loop for a directory, which is locked until Close. An unreadable directory is not an error of
// NewLoop: the loop reports it.
func (m *Manager) NewLoop(o LoopOptions) (*Loop, error) {
	path, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	lockPath := dirLockPath(m.o.Dirs, path)
	if err := os.MkdirAll(filepath.Dir(lockPath), 0o755); err != nil {
		return nil, err
	}
	lock, err := filelock.Try(lockPath)
	if err == nil && lock == nil {
		err = fmt.Errorf("another crishim sync manages the pods of %s", path)
	}
	if err != nil {
		return nil, err
	}
	l := &Loop{
		m: m, o: o, lock: lock, directory: &directory{path: path, options: o.Manifests, now: time.Now, settle: settleTime}, workers: map[string]*worker{},
		listed: map[string]string{}, reported: map[string]string{},
	}
	l.origin, _, err = readFile(originFile(lockPath))
	if err == nil {
		err = json.Unmarshal(l.origin, &l.directory.origin)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) { // without the recorded identity, an unmounted directory would look empty
		return nil, errors.Join(fmt.Errorf("read the identity of the directory in %s: %w", originFile(lockPath), err), lock.Release())
	}
	return l, nil
}

func originFile(lock string) string { return strings.TrimSuffix(lock, ".lock") + ".origin.json" }

// keepOrigin records the identity of the manifest directory next to its lock.
func (l *Loop) keepOrigin() {
	l.report("identity of the directory", replaceChanged(originFile(dirLockPath(l.m.o.Dirs, l.directory.path)), l.directory.origin, &l.origin))
}

// replaceChanged writes a value as JSON to a file, unless the value is unchanged since the last write.
func replaceChanged(path string, value any, last *[]byte) error {
	text, err := json.Marshal(value)
	if err == nil && !bytes.Equal(text, *last) {
		if err = replaceFile(path, text); err == nil {
			*last = text
		}
	}
	return err
}

// Close unlocks the directory and removes its list of invalid manifests. If the directory has no manifests, Close also
// removes the lock and the recorded identity.
func (l *Loop) Close() error {
	path, release := dirLockPath(l.m.o.Dirs, l.directory.path), l.lock.Release
	files := []string{invalidFile(path)}
	if l.directory.origin == (origin{}) {
		files, release = append(files, originFile(path)), l.lock.Remove
	}
	var errs []error
	for _, file := range files {
		if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, release())...)
}

// Run works until the context ends, like the kubelet's syncLoop. The pods keep running.
func (l *Loop) Run(ctx context.Context) {
	l.m.prober.Spread()
	defer l.wg.Wait()
	l.state.noRuntime.Store(true) // periodic tasks wait until the runtime is ready
	l.every(ctx, logPeriod, "log rotation", func() error { return l.m.RotateLogs(ctx, l.o.Logs) })
	l.every(ctx, gcPeriod, "garbage collection", func() error {
		_, err := l.m.GarbageCollect(ctx, l.o.GC, l.sources())
		return err
	})
	if l.o.Images.High > 0 {
		l.every(ctx, imagePeriod, "image garbage collection", func() error { return l.collectImages(ctx) })
	}
	ticker := time.NewTicker(relistPeriod)
	defer ticker.Stop()
	for {
		l.iterate(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// settleLimit is how long RunOnce waits for files that change.
const settleLimit = time.Minute

// RunOnce waits until the manifests no longer change, at most for settleLimit. It removes pods that were created from the
// directory and have no manifest there now, and then brings up the others. It handles the pods concurrently and returns
// when all are done.
func (l *Loop) RunOnce(ctx context.Context, wait Wait) error {
	_, readErr := l.directory.read()
	for began := l.directory.now(); !l.directory.settled; _, readErr = l.directory.read() { // a writer may be active
		if !l.directory.listed {
			return readErr
		}
		if l.directory.now().Sub(began).Abs() > settleLimit {
			return errors.Join(readErr, fmt.Errorf("the manifests of %s still change after %v", l.directory.path, settleLimit))
		}
		select {
		case <-ctx.Done():
			return errors.Join(readErr, ctx.Err())
		case <-time.After(poll):
		}
	}
	l.reportWarnings()
	l.keepOrigin()
	pods, err := l.m.GetPods(ctx, true)
	if err != nil {
		return errors.Join(readErr, err)
	}
	run, cancel := context.WithCancel(ctx)
	defer l.wg.Wait()
	defer cancel()
	l.removeUnwanted(run, pods)
	for _, w := range l.workers {
		select {
		case <-w.done:
		case <-ctx.Done():
			return errors.Join(readErr, ctx.Err())
		}
	}
	clear(l.workers)
	if pods, err = l.m.GetPods(ctx, true); err != nil {
		return errors.Join(readErr, err)
	}
	byUID := map[string]*pod.Pod{}
	for _, p := range pods {
		byUID[p.UID] = p
	}
	ended := make(chan error)
	for uid, want := range l.directory.pods {
		go func() {
			err := l.otherOfName(ctx, uid, want, pods)
			if err == nil {
				_, _, err = l.m.Up(ctx, want.pod, want.set, byUID[uid], wait)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", FullName(want.pod), err)
			}
			ended <- err
		}()
	}
	errs := []error{readErr}
	for range l.directory.pods {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// iterate compares the directory with the runtime once, like the kubelet's syncLoopIteration. A list of all pods takes the
// place of the kubelet's GenericPLEG: it wakes the workers of the pods that have changed.
func (l *Loop) iterate(ctx context.Context) {
	changed, err := l.directory.read()
	l.report("directory", err)
	l.reportWarnings()
	l.keepInvalid(err)
	l.keepOrigin()
	l.fresh = l.fresh || changed
	waited := l.state.blocks(false)
	err = l.checkRuntime(ctx)
	var pods []*pod.Pod
	if err == nil {
		pods, err = l.m.GetPods(ctx, true)
	}
	if ctx.Err() != nil {
		return
	}
	l.report("runtime", err)
	l.state.noRuntime.Store(err != nil)
	if err != nil {
		return
	}
	maps.DeleteFunc(l.workers, func(_ string, w *worker) bool {
		select {
		case <-w.done:
			return true
		default:
			return false
		}
	})
	l.recordLive(pods)
	back, listed := waited && !l.state.blocks(false), map[string]string{}
	for _, p := range pods {
		listed[p.UID] = fingerprint(p)
	}
	for uid, w := range l.workers {
		if back || l.listed[uid] != listed[uid] {
			w.notify()
		}
	}
	l.listed = listed
	l.removeUnwanted(ctx, pods)
	l.startWanted(ctx, pods)
}

// checkRuntime asks the runtime from time to time whether it is ready, more often while it is not, like the kubelet's
// updateRuntimeUp. Without a network only pods in the host's network are synced.
func (l *Loop) checkRuntime(ctx context.Context) error {
	now := l.m.o.Now()
	if !l.state.blocks(false) && now.Sub(l.checked).Abs() < statusPeriod {
		return nil
	}
	l.checked = now
	status, err := l.m.Status(ctx)
	if err != nil {
		return err
	}
	network := notReady(status, runtimeapi.NetworkReady)
	l.report("network", network)
	l.state.noNetwork.Store(network != nil)
	return notReady(status, runtimeapi.RuntimeReady)
}

func notReady(status *runtimeapi.RuntimeStatus, name string) error {
	for _, c := range status.GetConditions() {
		if c.GetType() == name && c.GetStatus() {
			return nil
		}
		if c.GetType() == name {
			return fmt.Errorf("not ready, pods wait: %s", strings.Trim(c.GetReason()+": "+c.GetMessage(), ": "))
		}
	}
	return fmt.Errorf("not ready, pods wait: the runtime's status has no condition %s", name)
}

// recordLive records which pods are not garbage, before workers create more.
func (l *Loop) recordLive(pods []*pod.Pod) {
	if !l.directory.complete() {
		l.live.Store(nil)
		return
	}
	live := map[string]bool{}
	for _, p := range pods {
		live[p.UID] = true
	}
	for uid := range l.workers {
		live[uid] = true
	}
	for uid := range l.directory.pods {
		live[uid] = true
	}
	l.live.Store(&live)
}

// reportWarnings reports the warnings about manifests, such as parts without effect.
func (l *Loop) reportWarnings() {
	var all error
	for _, text := range l.directory.warnings {
		all = errors.Join(all, errors.New(text))
	}
	l.report("manifests", all)
}

// report reports a problem and its end once each, like the kubelet's logReduction.
func (l *Loop) report(what string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if l.reported[what] == text {
		return
	}
	l.reported[what] = text
	if l.o.Problem != nil {
		l.o.Problem(what, err)
	}
}

// fingerprint omits containers that are only created: a worker creates one for each failed start, and that must not cause
// an immediate retry.
func fingerprint(p *pod.Pod) string {
	text := ""
	for _, s := range p.Sandboxes {
		text += fmt.Sprint(s.GetId(), s.GetState(), " ")
	}
	for _, c := range p.Containers {
		if c.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED {
			text += fmt.Sprint(c.GetId(), c.GetState(), " ")
		}
	}
	return text
}

// removeUnwanted ends pods that are no longer in the directory, like the kubelet's HandlePodRemoves and
// HandlePodCleanups. The pods of a file with a problem stay, unless another pod of the same name replaces them.
func (l *Loop) removeUnwanted(ctx context.Context, pods []*pod.Pod) {
	for _, p := range pods {
		if _, wanted := l.directory.pods[p.UID]; wanted || l.workers[p.UID] != nil {
			continue
		}
		owner := l.m.OwnerOf(ctx, p)
		if owner.Dir == l.directory.path && (l.directory.dropped(owner.File) || l.directory.wantsName(p.Namespace, p.Name)) {
			l.startWorker(ctx, p.UID, p.FullName(), desired{}, true)
		}
	}
	for uid, w := range l.workers {
		namespace, name, _ := strings.Cut(w.name, "/")
		if _, wanted := l.directory.pods[uid]; !wanted && (l.directory.dropped(w.file()) || l.directory.wantsName(namespace, name)) {
			w.remove()
		}
	}
}

// startWanted starts a worker for each wanted pod once no other pod has its name, and passes on changed manifests, like
// the kubelet's HandlePodAdditions and HandlePodUpdates.
func (l *Loop) startWanted(ctx context.Context, pods []*pod.Pod) {
	defer func() { l.fresh = false }()
	taken := map[string]error{}
	for uid, want := range l.directory.pods {
		if w := l.workers[uid]; w != nil {
			if l.fresh && !w.isRemoving() {
				w.update(want)
			}
			continue
		}
		err := l.otherOfName(ctx, uid, want, pods)
		switch {
		case err == nil:
			l.startWorker(ctx, uid, FullName(want.pod), want, false)
		case !errors.Is(err, errBeingRemoved):
			taken[FullName(want.pod)] = err
		}
	}
	var all error
	for _, name := range slices.Sorted(maps.Keys(taken)) {
		all = errors.Join(all, taken[name])
	}
	l.report("names of pods", all)
}

// errBeingRemoved is returned while the loop removes another pod of the same name.
var errBeingRemoved = errors.New("the pod before it is still being removed")

// otherOfName returns an error if another pod has the same name: errBeingRemoved, or a foreignPodError.
func (l *Loop) otherOfName(ctx context.Context, uid string, want desired, pods []*pod.Pod) error {
	name := FullName(want.pod)
	for other, w := range l.workers {
		if other != uid && w.name == name {
			return errBeingRemoved
		}
	}
	for _, p := range pods {
		if p.UID != uid && p.FullName() == name && isRunning(p) {
			return &foreignPodError{Name: name, UID: p.UID, Owner: l.m.OwnerOf(ctx, p)}
		}
	}
	return nil
}

// startWorker starts a worker that manages a pod. If remove is true, the worker removes the pod, which may have no
// manifest.
func (l *Loop) startWorker(ctx context.Context, uid, name string, want desired, remove bool) {
	w := newWorker(l.m, uid, name, want, &l.state)
	w.removing = remove
	l.workers[uid] = w
	l.wg.Go(func() { w.run(ctx) })
}

// every calls do as soon as the runtime is ready, and then periodically. It runs in its own goroutine, so that it does not
// delay pods.
func (l *Loop) every(ctx context.Context, period time.Duration, what string, do func() error) {
	l.wg.Go(func() {
		for {
			wait := relistPeriod
			if !l.state.noRuntime.Load() {
				wait = period
				if err := do(); ctx.Err() == nil {
					l.report(what, err)
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	})
}

// collectImages removes unused images if the disk of the images is visible. The first call only records used images.
func (l *Loop) collectImages(ctx context.Context) error {
	first := l.images.records == nil
	g, err := l.m.planImages(ctx, l.o.Images, &l.images)
	switch {
	case errors.Is(err, errDiskUnknown), err == nil && first:
		return nil
	case err != nil:
		return err
	}
	return l.m.Collect(ctx, g)
}

// sources limits garbage collection to pods that sync created from the loop's directory. A pod counts as deleted if it
// is not wanted, has no worker and is unknown to the runtime. Workers remove all other pods.
func (l *Loop) sources() Sources {
	return Sources{Dir: l.directory.path, Deleted: func(uid string) bool {
		live := l.live.Load()
		return live != nil && !(*live)[uid]
	}}
}
