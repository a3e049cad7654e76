package kuberuntime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crishim/crishim/internal/filelock"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/volume"
)

// Record has a pod's manifest, for commands that only get a name. It is kept in the pod's directory.
type Record struct {
	// Runtimes are all runtimes that have the pod, by identity. The UID comes from the manifest, so pods of two runtimes
	// share the directory.
	Runtimes map[string]runtimeRecord `json:"runtimes"`
	Pod      *v1.Pod                  `json:"pod"`
	// Started is when the pod's first sandbox was created, even after that sandbox was removed. After the removal of all
	// sandboxes, the next sandbox counts as the first.
	Started time.Time `json:"started,omitzero"`
}

// runtimeRecord has a runtime's last endpoint, and its data root if known.
type runtimeRecord struct {
	Endpoint string `json:"endpoint"`
	Root     string `json:"root,omitempty"`
}

// errNoRecord is returned for a pod that apply or sync did not create here.
var errNoRecord = errors.New("no record of the pod")

func recordPath(d pod.Dirs, uid string) string { return filepath.Join(d.Pod(uid), "pod.json") }

func (m *Manager) recordPod(ctx context.Context, p *v1.Pod, status *pod.Status) (err error) {
	own, err := m.identify(ctx)
	if err != nil {
		return err
	}
	unlock, err := m.lockRecord(ctx, string(p.UID))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	record := Record{Runtimes: map[string]runtimeRecord{}, Pod: p, Started: m.started(p, status)}
	if record.Started.IsZero() {
		record.Started = m.o.Now()
	}
	if before, err := m.Record(string(p.UID)); err == nil {
		record.Runtimes = before.without(own)
	}
	record.Runtimes[own.key] = runtimeRecord{Endpoint: m.o.Endpoint, Root: own.root}
	return m.writeRecord(&record)
}

// updateRecord notes that the manifest of a pod is in another file than before.
func (m *Manager) updateRecord(ctx context.Context, p *v1.Pod) (err error) {
	record, own := m.ownRecord(ctx, string(p.UID))
	if !own || record.Pod.Annotations[pod.FileAnnotation] == p.Annotations[pod.FileAnnotation] {
		return nil
	}
	unlock, err := m.lockRecord(ctx, string(p.UID))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if record, err = m.Record(string(p.UID)); err != nil {
		return err
	}
	record.Pod = p
	return m.writeRecord(record)
}

// without returns the other runtimes that have the pod.
func (r *Record) without(own identity) map[string]runtimeRecord {
	others := map[string]runtimeRecord{}
	for key, runtime := range r.Runtimes {
		if !own.is(key, runtime) {
			others[key] = runtime
		}
	}
	return others
}

// lockRecord serializes changes of a record by several processes.
func (m *Manager) lockRecord(ctx context.Context, uid string) (unlock func() error, err error) {
	return m.lock(ctx, "record\x00"+uid, nil)
}

// writeRecord writes a file that only its owner may read, because the environment in the manifest may contain secrets.
func (m *Manager) writeRecord(record *Record) error {
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode the pod: %w", err)
	}
	path := recordPath(m.o.Dirs, string(record.Pod.UID))
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("make the pod's directory: %w", err)
	}
	if err := replaceFile(path, data); err != nil {
		return fmt.Errorf("keep the manifest: %w", err)
	}
	return nil
}

// removeDirs removes logs and volumes, unless another runtime has a pod of the same manifest. It keeps the logs of pods of
// other tools.
func (m *Manager) removeDirs(ctx context.Context, uid string) (err error) {
	if !pod.IsUID(uid) {
		return nil
	}
	own, err := m.identify(ctx)
	if err != nil {
		return err
	}
	unlock, err := m.lockRecord(ctx, uid)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	record, err := m.Record(uid)
	if errors.Is(err, errNoRecord) {
		return nil
	}
	if err != nil {
		return err
	}
	others := record.without(own)
	if len(others) > 0 {
		for key := range record.Runtimes {
			if _, other := others[key]; other {
				continue
			}
			file := stateFile(m.o.Dirs, uid, key)
			if err := errors.Join(volume.RemoveAll(file), volume.RemoveAll(stateLockPath(file))); err != nil {
				return fmt.Errorf("remove the state: %w", err)
			}
		}
		record.Runtimes = others
		return m.writeRecord(record)
	}
	cgroup := removePodCgroup(m.o.Host, record.Pod)
	if cgroup != nil { // a privileged container or another tool can keep the cgroup busy, but secrets must still be removed
		cgroup = fmt.Errorf("remove the pod's cgroup: %w", cgroup)
	}
	// The path is built from the names in the record. The names in the runtime are not trusted: another tool may have
	// set any text.
	if err := volume.RemoveAll(m.o.Dirs.PodLogs(record.Pod)); err != nil {
		return fmt.Errorf("remove logs: %w", err)
	}
	if err := m.volumes.Teardown(uid); err != nil {
		return fmt.Errorf("remove volumes: %w", err)
	}
	return cgroup
}

// Record reads the record of a pod. It returns errNoRecord for an unknown pod.
func (m *Manager) Record(uid string) (*Record, error) { return readRecord(m.o.Dirs, uid) }

func readRecord(d pod.Dirs, uid string) (*Record, error) {
	if !pod.IsUID(uid) {
		return nil, errNoRecord
	}
	data, _, err := readFile(recordPath(d, uid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, errNoRecord
	}
	if err != nil {
		return nil, err
	}
	record := &Record{}
	err = json.Unmarshal(data, record)
	if p := record.Pod; err != nil || p == nil || string(p.UID) != uid || p.Name == "" || strings.Contains(p.Namespace+p.Name, "/") {
		return nil, fmt.Errorf("%w: %s cannot be read", errNoRecord, recordPath(d, uid))
	}
	return record, nil
}

// ownRecord returns the record of a pod that apply or sync created on this runtime.
func (m *Manager) ownRecord(ctx context.Context, uid string) (*Record, bool) {
	record, err := m.Record(uid)
	if err != nil {
		return record, false
	}
	own, err := m.identify(ctx)
	return record, err == nil && len(record.without(own)) < len(record.Runtimes)
}

func FullName(p *v1.Pod) string { return p.Namespace + "/" + p.Name }

// Prepare sets the uid and the kubelet's annotations of a pod that was read from a manifest, like the kubelet's
// applyDefaults for static pods. A pod from sync has a different uid than the same manifest from apply.
func Prepare(p *v1.Pod, directory string, now time.Time) error {
	if directory != "" {
		p.UID = types.UID("directory " + directory + " " + string(p.UID))
	}
	uid, err := pod.UID(p)
	if err != nil {
		return err
	}
	p.UID = uid
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[pod.ConfigSeenAnnotation] = now.UTC().Format(time.RFC3339Nano)
	p.Annotations[pod.ConfigSourceAnnotation] = "api"
	// A manifest from describe has these annotations: sync would treat the new pod as its own, and remove it.
	delete(p.Annotations, pod.DirAnnotation)
	delete(p.Annotations, pod.FileAnnotation)
	delete(p.Annotations, pod.ConfigHashAnnotation)
	if directory != "" {
		p.Annotations[pod.ConfigSourceAnnotation] = "file"
		p.Annotations[pod.ConfigHashAnnotation] = string(uid)
		p.Annotations[pod.DirAnnotation] = directory
	}
	return nil
}

// Owner is the creator of a pod. It is zero for a kubelet, crictl, or another tool.
type Owner struct {
	Apply bool   // created by Up, on this host and runtime
	Dir   string // created by Loop, from this directory
	File  string // name of the manifest in Dir, if known
}

func (o Owner) String() string {
	switch {
	case o.Dir != "":
		return "crishim sync " + o.Dir
	case o.Apply:
		return "crishim apply"
	}
	return "another tool"
}

// OwnerOf returns who created a pod, by its record and annotations.
func (m *Manager) OwnerOf(ctx context.Context, p *pod.Pod) Owner {
	record, own := m.ownRecord(ctx, p.UID)
	if own {
		annotations := record.Pod.Annotations
		if directory := annotations[pod.DirAnnotation]; directory != "" {
			return Owner{Dir: directory, File: annotations[pod.FileAnnotation]}
		}
	}
	for _, s := range p.Sandboxes {
		if directory := s.GetAnnotations()[pod.DirAnnotation]; directory != "" {
			return Owner{Dir: directory, File: s.GetAnnotations()[pod.FileAnnotation]}
		}
	}
	return Owner{Apply: own}
}

// foreignPodError is returned if another tool has created a pod of the same name.
type foreignPodError struct {
	Name, UID string
	Owner     Owner
}

func (e *foreignPodError) Error() string {
	return fmt.Sprintf("a pod %s that %s made is there already (uid %s)", e.Name, e.Owner, e.UID)
}

// LockPod locks a pod against changes by other processes. It calls waiting when it starts to wait.
func (m *Manager) LockPod(ctx context.Context, namespace, name string, waiting func()) (unlock func() error, err error) {
	key, err := m.podLockKey(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return m.lock(ctx, key, waiting)
}

func (m *Manager) podLockKey(ctx context.Context, namespace, name string) (string, error) {
	own, err := m.identify(ctx)
	return own.key + "\x00" + namespace + "/" + name, err
}

// lock acquires the lock of this host for a key.
func (m *Manager) lock(ctx context.Context, key string, waiting func()) (unlock func() error, err error) {
	path, err := m.lockPath(key)
	if err != nil {
		return nil, err
	}
	held, err := filelock.Wait(ctx, path, waiting)
	if err != nil {
		return nil, err
	}
	return held.Remove, nil
}

func (m *Manager) lockPath(key string) (string, error) {
	dir := filepath.Join(m.o.Dirs.Root, "locks")
	return filepath.Join(dir, shortHash(key)+".lock"), os.MkdirAll(dir, 0o755)
}

// shortHash returns a file name for any text.
func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// dirLockPath returns the lock of the process that manages the pods of a directory.
func dirLockPath(d pod.Dirs, directory string) string {
	return filepath.Join(d.Root, "sync", shortHash(directory)+".lock")
}

// DirInUse reports whether a Loop manages the pods of a directory.
func DirInUse(d pod.Dirs, directory string) bool { return filelock.Held(dirLockPath(d, directory)) }
