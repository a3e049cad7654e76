package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// LoopOptions say how a folder is looked after.
type LoopOptions struct {
	Folder string
	// Problem is told when the folder or the runtime cannot be read, and with nil when it
	// can again; each once.
	Problem func(what string, err error)
	GC      GCPolicy
	Images  ImagePolicy
	Logs    LogPolicy
}

// Periods of the loop.
const (
	relist    = time.Second
	logPeriod = 10 * time.Second
	gcPeriod  = time.Minute
)

// Loop keeps the pods of a folder running: static pods without a kubelet.
type Loop struct {
	m       *Manager
	o       LoopOptions
	folder  *folder
	lock    *folderLock
	workers map[string]*worker
	prints  map[string]string // what the last list showed of each pod
	said    map[string]string // problems that were reported
	lastGC  time.Time
	lastLog time.Time // when the sizes of logs were last looked at
	fresh   bool      // the folder was read again since workers were last updated
	wg      sync.WaitGroup
}

// NewLoop takes the folder; Close gives it back.
func (m *Manager) NewLoop(o LoopOptions) (*Loop, error) {
	path, err := filepath.Abs(o.Folder)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	lock, err := lockFolder(m.o.Dirs, path)
	if err != nil {
		return nil, err
	}
	l := &Loop{
		m: m, o: o, lock: lock, folder: &folder{path: path, now: m.o.Now}, workers: map[string]*worker{},
		prints: map[string]string{}, said: map[string]string{}, lastGC: m.o.Now(), lastLog: m.o.Now(),
	}
	return l, nil
}

// Close gives the folder back.
func (l *Loop) Close() error { return l.lock.unlock() }

// Run works until the context ends. The pods run on.
func (l *Loop) Run(ctx context.Context) {
	l.m.prober.Spread()
	defer l.wg.Wait()
	ticker := time.NewTicker(relist)
	defer ticker.Stop()
	for {
		l.turn(ctx)
		select {
		case <-ctx.Done():
			return
		case <-l.m.changed:
			for _, w := range l.workers {
				w.nudge()
			}
		case <-ticker.C:
		}
	}
}

// turn compares the folder with the runtime once.
func (l *Loop) turn(ctx context.Context) {
	changed, err := l.folder.read()
	if changed || err != nil {
		l.report("folder", err)
	}
	l.fresh = l.fresh || changed
	pods, err := l.m.GetPods(ctx, true)
	if ctx.Err() != nil {
		return
	}
	l.report("runtime", err)
	if err != nil {
		return
	}
	l.reap()
	l.wake(pods)
	l.removeUnwanted(ctx, pods)
	l.startWanted(ctx, pods)
	l.housekeeping(ctx)
}

// report tells a problem once, and its end.
func (l *Loop) report(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if l.said[what] == text {
		return
	}
	l.said[what] = text
	if l.o.Problem != nil {
		l.o.Problem(what, err)
	}
}

// reap forgets the workers whose pods are removed.
func (l *Loop) reap() {
	for uid, w := range l.workers {
		select {
		case <-w.done:
			delete(l.workers, uid)
			delete(l.prints, uid)
		default:
		}
	}
}

// wake makes workers look at pods of which the list shows something new.
func (l *Loop) wake(pods []*pod.Pod) {
	seen := map[string]string{}
	for _, p := range pods {
		seen[p.UID] = fingerprint(p)
	}
	for uid, w := range l.workers {
		if l.prints[uid] != seen[uid] {
			l.prints[uid] = seen[uid]
			w.nudge()
		}
	}
}

func fingerprint(p *pod.Pod) string {
	text := ""
	for _, s := range p.Sandboxes {
		text += fmt.Sprint(s.GetId(), s.GetState(), " ")
	}
	for _, c := range p.Containers {
		text += fmt.Sprint(c.GetId(), c.GetState(), " ")
	}
	return text
}

// removeUnwanted ends the folder's pods that it has no more. While not everything in it
// could be read, only those go that a pod of the same name follows.
func (l *Loop) removeUnwanted(ctx context.Context, pods []*pod.Pod) {
	for _, p := range pods {
		if _, owner := l.m.OwnerOf(p); owner != l.folder.path {
			continue
		}
		if _, wanted := l.folder.pods[p.UID]; wanted || l.workers[p.UID] != nil {
			continue
		}
		if l.folder.complete || l.folder.wantsName(p.Namespace, p.Name) {
			l.startWorker(ctx, p.UID, p.FullName(), desired{}).remove()
		}
	}
	for uid, w := range l.workers {
		namespace, name := splitName(w.name)
		if _, wanted := l.folder.pods[uid]; !wanted && (l.folder.complete || l.folder.wantsName(namespace, name)) {
			w.remove()
		}
	}
}

// startWanted gives each wanted pod a worker, once nothing else of its name is there.
func (l *Loop) startWanted(ctx context.Context, pods []*pod.Pod) {
	defer func() { l.fresh = false }()
	for uid, want := range l.folder.pods {
		if w := l.workers[uid]; w != nil {
			if l.fresh && !w.isRemoving() {
				w.update(want)
			}
			continue
		}
		if l.nameTaken(uid, want, pods) {
			continue
		}
		l.startWorker(ctx, uid, FullName(want.pod), want)
	}
}

// nameTaken says whether another pod of the same name is in the way. One of ours is on its
// way out; one of somebody else is reported.
func (l *Loop) nameTaken(uid string, want desired, pods []*pod.Pod) bool {
	name := FullName(want.pod)
	for other, w := range l.workers {
		if other != uid && w.name == name {
			return true
		}
	}
	for _, p := range pods {
		if p.UID == uid || p.FullName() != name || !isRunning(p) {
			continue
		}
		owner := "another tool"
		switch kind, folder := l.m.OwnerOf(p); kind {
		case OwnerApply:
			owner = "crishim apply"
		case OwnerFolder:
			owner = "crishim sync " + folder
		}
		l.report("pod "+name, &ForeignPodError{Name: name, UID: p.UID, Owner: owner})
		return true
	}
	l.report("pod "+name, nil)
	return false
}

func (l *Loop) startWorker(ctx context.Context, uid, name string, want desired) *worker {
	w := newWorker(l.m, uid, name, want)
	l.workers[uid] = w
	l.wg.Go(func() { w.run(ctx) })
	return w
}

// housekeeping rotates logs and collects garbage, each in the kubelet's period.
func (l *Loop) housekeeping(ctx context.Context) {
	now := l.m.o.Now()
	if now.Sub(l.lastLog) >= logPeriod {
		l.lastLog = now
		if err := l.m.RotateLogs(ctx, l.o.Logs); ctx.Err() == nil {
			l.report("log rotation", err)
		}
	}
	if since := now.Sub(l.lastGC); since >= 0 && since < gcPeriod { // the clock may have been put back
		return
	}
	l.lastGC = now
	_, err := l.m.GarbageCollect(ctx, l.o.GC, l.sources())
	if l.o.Images.High > 0 { // images go only where the disk can be seen
		if g, planErr := l.m.PlanImages(ctx, l.o.Images); planErr == nil {
			err = errors.Join(err, l.m.Collect(ctx, g))
		}
	}
	if ctx.Err() == nil {
		l.report("garbage collection", err)
	}
}

// sources: a pod of the folder that is wanted no more is removed by its worker, so for
// garbage collection no pod is gone that the runtime still has.
func (l *Loop) sources() Sources { return Sources{AllReady: l.folder.complete} }

// Once brings the runtime to what the folder says and returns: pods that are not wanted
// are removed, the others brought up, or with wait until they are ready.
func (l *Loop) Once(ctx context.Context, wait bool) error {
	_, readErr := l.folder.read()
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
	return errors.Join(readErr, l.upAll(ctx, pods, wait))
}

// upAll brings up all pods at the same time.
func (l *Loop) upAll(ctx context.Context, pods []*pod.Pod, wait bool) error {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for uid, want := range l.folder.pods {
		if l.nameTaken(uid, want, pods) {
			mu.Lock()
			errs = append(errs, fmt.Errorf("%s: another pod of this name is there", FullName(want.pod)))
			mu.Unlock()
			continue
		}
		wg.Go(func() {
			if _, err := l.m.Up(ctx, want.pod, want.set, wait); err != nil {
				if cause := context.Cause(ctx); cause != nil {
					err = cause
				}
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("%s: %w", FullName(want.pod), err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
