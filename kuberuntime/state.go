package kuberuntime

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/filelock"
	"github.com/crishim/crishim/internal/glob"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// PodState has facts about a pod that the runtime does not have: results of probes, and why and until when a container
// waits for its start. The process that manages the pod (sync or apply) keeps it in the pod's directory.
type PodState struct {
	// Managed reports whether the process that manages the pod still runs. If it does not, ReadState drops the results
	// of probes and the crash back-offs, which are outdated.
	Managed    bool             `json:"-"`
	Sandbox    string           `json:"sandbox,omitempty"` // id of the newest sandbox
	Phase      v1.PodPhase      `json:"phase"`
	Reason     string           `json:"reason,omitempty"` // reason if the pod failed as a whole: DeadlineExceeded, BackoffLimitExceeded
	Why        string           `json:"why,omitempty"`    // message for a failure that no container caused
	Ready      bool             `json:"ready"`            // the pod's condition Ready
	Containers []ContainerState `json:"containers"`
}

type ContainerState struct {
	Name    string `json:"name"`
	ID      string `json:"id,omitempty"`   // of the newest attempt
	Init    bool   `json:"init,omitempty"` // includes sidecars
	Sidecar bool   `json:"sidecar,omitempty"`
	// Ephemeral containers count neither for the pod's phase nor for its readiness.
	Ephemeral bool `json:"ephemeral,omitempty"`
	Probed    bool `json:"probed,omitempty"` // the container has a startup or readiness probe
	Started   bool `json:"started"`          // running, and its startup probe, if any, has succeeded
	Ready     bool `json:"ready"`
	Restarts  int  `json:"restarts"`
	// Sandbox, start and end of the newest attempt, because the runtime may forget them.
	Sandbox   string    `json:"sandbox,omitempty"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	ExitCode  *int      `json:"exitCode,omitempty"`
	Replaced  bool      `json:"replaced,omitempty"` // SyncPod stopped it for a new image
	// Waiting is the kubelet's reason why the container does not start (CrashLoopBackOff, ErrImagePull, ...); "" if it
	// does not wait. NextTry is the end of its back-off; zero if unknown.
	Waiting string    `json:"waiting,omitempty"`
	Message string    `json:"message,omitempty"`
	NextTry time.Time `json:"nextTry,omitzero"`
}

// Ended returns the state of a finished pod in one word, because the runtime may forget its containers. It returns ""
// for a pod that has not finished.
func (s *PodState) Ended() string {
	switch {
	case s == nil:
	case s.Phase == v1.PodSucceeded:
		return kube.Completed
	case s.Phase == v1.PodFailed:
		return cmp.Or(s.Reason, "Error")
	}
	return ""
}

// Container returns the state of a container by name, or nil.
func (s *PodState) Container(name string) *ContainerState {
	if s != nil {
		for i := range s.Containers {
			if s.Containers[i].Name == name {
				return &s.Containers[i]
			}
		}
	}
	return nil
}

// probes returns the results of startup and readiness probes.
func (s *PodState) probes(id string, kind plan.Kind) plan.Result {
	for _, c := range s.Containers {
		if c.ID == id && (kind == plan.Startup && c.Started || kind == plan.Readiness && c.Ready) {
			return plan.Success
		}
	}
	return plan.Unknown
}

// maxState bounds the file and the record: a manifest has at most 1.5 MiB.
const maxState = 4 << 20

// ReadState reads the state of a pod with these sandboxes, or returns nil. Pods of several runtimes with the same manifest
// share the directory: the sandboxes identify the right state.
func ReadState(d pod.Dirs, uid string, sandboxes ...string) (*PodState, error) {
	if !pod.IsUID(uid) {
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(glob.Escape(d.Pod(uid)), "state-*.json"))
	if err != nil {
		return nil, err
	}
	// A runtime may have had two names, for example a socket at two paths. The state of a given sandbox wins, then the
	// state of a managed pod, then the newest state.
	var found *PodState
	var best time.Time
	var own bool
	var errs []error
	for _, file := range files {
		s, written, err := readState(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		isOwn := slices.Contains(sandboxes, s.Sandbox)
		if !isOwn && s.Sandbox != "" && len(files) > 1 {
			continue
		}
		s.Managed = filelock.Held(stateLockPath(file))
		if found == nil || isOwn && !own || isOwn == own && (s.Managed && !found.Managed || s.Managed == found.Managed && written.After(best)) {
			found, best, own = s, written, isOwn
		}
	}
	if found == nil {
		return nil, errors.Join(errs...)
	}
	if !found.Managed {
		found.forgetProbes()
	}
	return found, nil
}

// forgetProbes drops the results of probes, the ends of back-offs, and the waiting reason CrashLoopBackOff, because only
// the managing process can update them.
func (s *PodState) forgetProbes() {
	s.Ready = false
	for i := range s.Containers {
		c := &s.Containers[i]
		c.Started, c.Ready, c.NextTry = false, false, time.Time{}
		if c.Waiting == ErrCrashLoopBackOff.Error() {
			c.Waiting, c.Message = "", ""
		}
	}
}

func readState(path string) (s *PodState, written time.Time, err error) {
	text, written, err := readFile(path)
	if err == nil {
		s = &PodState{}
		err = json.Unmarshal(text, s)
	}
	return s, written, err
}

// readFile reads a file of a pod's directory. A container may have replaced the file, so readFile refuses links,
// devices, pipes and files larger than maxState.
func readFile(path string) (text []byte, written time.Time, err error) {
	f, err := bounded.Open(path)
	if err != nil {
		return nil, written, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		written = info.ModTime()
	}
	text, err = bounded.ReadAll(f, maxState)
	return text, written, err
}

// stateFile returns the path of a pod's state for a runtime.
func stateFile(d pod.Dirs, uid, runtime string) string {
	return filepath.Join(d.Pod(uid), "state-"+shortHash(runtime)+".json")
}

func stateLockPath(file string) string { return strings.TrimSuffix(file, ".json") + ".lock" }

// stateWriter writes the states of the pods that this process manages.
type stateWriter struct {
	mu   sync.Mutex // guards the fields below and their contents
	pods map[string]*trackedPod
}

// trackedPod is a pod that this process manages, with its last written state.
type trackedPod struct {
	probed  chan struct{} // has a token after a probe has had a new result
	file    string
	lock    *filelock.Lock // nil while there is no directory, or another process manages the pod
	pod     *v1.Pod
	status  *pod.Status
	waiting map[string]wait // why containers wait for a start, by name; an entry is stale if its container runs or must not run
	written []byte
	kept    *PodState       // as written, also by an earlier process; nil until it was read
	ended   map[string]bool // ids of containers whose end is among the events; nil until the events were read
}

type wait struct {
	reason, message string
	next            time.Time
}

// recordState writes the state of a pod from its status and the result of its last step, if any.
func (m *Manager) recordState(ctx context.Context, p *v1.Pod, status *pod.Status, result *SyncResult) {
	own, err := m.identify(ctx)
	if err != nil {
		return // not reported here, because the step reports that the runtime does not answer
	}
	m.states.mu.Lock()
	defer m.states.mu.Unlock()
	tracked := m.states.of(string(p.UID))
	tracked.file, tracked.pod, tracked.status = stateFile(m.o.Dirs, string(p.UID), own.key), p, status
	if result != nil {
		tracked.update(result.failures, m.o.Now())
	}
	m.writeState(tracked)
}

// recordReplaced records that a container is stopped for a new image, because its exit code will not show the cause.
func (m *Manager) recordReplaced(ctx context.Context, p *v1.Pod, status *pod.Status, c *pod.ContainerStatus) {
	m.states.mu.Lock()
	c.Replaced = true
	m.states.mu.Unlock()
	m.recordState(ctx, p, status, nil)
}

// markReplaced marks the containers of a status that were stopped for a new image.
func (s *PodState) markReplaced(status *pod.Status) {
	for _, c := range status.Containers {
		state := s.Container(c.Name)
		c.Replaced = state != nil && state.ID == c.ID && state.Replaced && c.Exited()
	}
}

// recall adds containers that the runtime no longer has to a status, with their ends from the state on disk, or the
// kubelet's ContainerStatusUnknown. An unreadable state blocks a pod whose containers must not run twice.
func (m *Manager) recall(ctx context.Context, p *v1.Pod, status *pod.Status) error {
	own, err := m.identify(ctx)
	if err != nil {
		return err
	}
	m.states.mu.Lock()
	defer m.states.mu.Unlock()
	tracked := m.states.of(string(p.UID))
	if tracked.kept == nil {
		tracked.kept, err = m.lastState(own, string(p.UID))
		if err != nil && slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool { return plan.Policy(p, &c) != v1.RestartPolicyAlways }) {
			return fmt.Errorf("read the pod's state: %w", err)
		}
	}
	if tracked.kept == nil {
		tracked.kept = &PodState{}
	}
	tracked.kept.markReplaced(status)
	for _, c := range tracked.kept.Containers {
		if c.StartedAt.IsZero() || status.Container(c.Name) != nil {
			continue
		}
		lost := &pod.ContainerStatus{
			ID: c.ID, Name: c.Name, SandboxID: c.Sandbox, State: runtimeapi.ContainerState_CONTAINER_EXITED, RestartCount: c.Restarts,
			StartedAt: c.StartedAt, ExitCode: lostExitCode, Reason: "ContainerStatusUnknown", Replaced: c.Replaced,
		}
		if c.ExitCode != nil {
			lost.ExitCode, lost.Reason = *c.ExitCode, ""
		}
		status.Containers = append(status.Containers, lost)
	}
	return nil
}

// lostExitCode is the kubelet's exit code for a container that vanished.
const lostExitCode = 137

// lastState reads the last state of a pod of this runtime, or of the runtime that had this endpoint before. It returns
// nil for a pod without a state.
func (m *Manager) lastState(own identity, uid string) (*PodState, error) {
	keys := []string{own.key}
	if record, err := m.Record(uid); err == nil {
		for key, r := range record.Runtimes {
			if own.is(key, r) && key != own.key {
				keys = append(keys, key)
			}
		}
	}
	for _, key := range keys {
		if s, _, err := readState(stateFile(m.o.Dirs, uid, key)); !errors.Is(err, os.ErrNotExist) {
			return s, err
		}
	}
	return nil, nil
}

// kept returns the last written state of a pod, possibly from an earlier process.
func (m *Manager) kept(uid string) *PodState {
	m.states.mu.Lock()
	defer m.states.mu.Unlock()
	if tracked := m.states.pods[uid]; tracked != nil {
		return tracked.kept
	}
	return nil
}

// final reports whether the pod has ended and is never started again.
func (s *PodState) final() bool {
	return s != nil && (s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed)
}

// update records which containers still wait after a step, and until when. If something other than a container failed,
// such as the sandbox, the records stay unchanged.
func (t *trackedPod) update(failures []error, now time.Time) {
	waiting := map[string]wait{}
	for _, err := range failures {
		one, ok := errors.AsType[*WaitingError](err)
		if !ok {
			return
		}
		w := t.waiting[one.Container]
		w.next = time.Time{}
		if after, backsOff := backOffOf(err); backsOff {
			w.next = now.Add(after)
		}
		waiting[one.Container] = w
	}
	t.waiting = waiting
}

func (w *stateWriter) of(uid string) *trackedPod {
	if w.pods[uid] == nil {
		w.pods[uid] = &trackedPod{probed: make(chan struct{}, 1), waiting: map[string]wait{}}
	}
	return w.pods[uid]
}

func (m *Manager) setWaiting(uid, container, reason, message string) {
	m.states.mu.Lock()
	defer m.states.mu.Unlock()
	if tracked := m.states.pods[uid]; tracked != nil {
		tracked.waiting[container] = wait{reason: reason, message: message}
	}
}

// updateState writes a pod's state after a new probe result, and wakes waiters.
func (m *Manager) updateState(uid string) {
	m.states.mu.Lock()
	defer m.states.mu.Unlock()
	tracked := m.states.pods[uid]
	if tracked == nil {
		return
	}
	if tracked.status != nil {
		m.writeState(tracked)
	}
	select {
	case tracked.probed <- struct{}{}:
	default:
	}
}

// probed returns a channel that receives a token after each new probe result of a pod.
func (m *Manager) probed(uid string) <-chan struct{} {
	m.states.mu.Lock()
	defer m.states.mu.Unlock()
	return m.states.of(uid).probed
}

// closeState stops writing a pod's state, for example when sync ends. The file stays in the pod's directory.
func (m *Manager) closeState(uid string) {
	m.states.mu.Lock()
	defer m.states.mu.Unlock()
	if tracked := m.states.pods[uid]; tracked != nil {
		if tracked.lock != nil {
			_ = tracked.lock.Release()
		}
		delete(m.states.pods, uid)
	}
}

// writeState atomically writes a changed state, if the pod has a directory. If two processes work on a pod, only the
// first writes. A failed write is a warning, because pods do not depend on it.
func (m *Manager) writeState(tracked *trackedPod) {
	state := m.stateOf(tracked)
	tracked.kept = state
	text, err := json.Marshal(state)
	if err == nil && tracked.lock == nil {
		tracked.lock, err = filelock.Try(stateLockPath(tracked.file))
		if errors.Is(err, os.ErrNotExist) { // the pod's directory is missing
			err = nil
		}
	}
	if err == nil && tracked.lock != nil && !bytes.Equal(text, tracked.written) {
		if err = replaceFile(tracked.file, text); err == nil {
			tracked.written = text
		}
	}
	if err != nil {
		m.warn(tracked.pod, "", eventFailed, "write the pod's state: %v", err)
	}
}

func (m *Manager) stateOf(tracked *trackedPod) *PodState {
	view := m.view(tracked.pod, tracked.status, m.prober.Result, tracked.kept)
	s := &PodState{Sandbox: tracked.status.Sandbox().GetId(), Phase: view.Phase, Reason: view.Reason, Why: view.Why, Ready: view.Ready}
	for _, c := range view.Containers {
		one := ContainerState{
			Name: c.Container.Name, Init: c.Init, Sidecar: c.Sidecar, Ephemeral: c.Ephemeral, Started: c.Started, Ready: c.Ready,
			Probed: c.Container.StartupProbe != nil || c.Container.ReadinessProbe != nil,
		}
		if c.Status != nil {
			one.ID, one.Restarts = c.Status.ID, c.Status.RestartCount
			one.Sandbox, one.StartedAt, one.Replaced = c.Status.SandboxID, c.Status.StartedAt, c.Status.Replaced
			if c.Status.Exited() {
				one.ExitCode = &c.Status.ExitCode
			}
		}
		if w := tracked.waiting[one.Name]; w.reason != "" && startsAgain(tracked.pod, c) {
			one.Waiting, one.Message, one.NextTry = w.reason, w.message, w.next
		}
		s.Containers = append(s.Containers, one)
	}
	return s
}

// replaceFile atomically writes a file that only its owner may read.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync() // else a crash of the host may leave an empty file
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
