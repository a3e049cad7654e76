package kuberuntime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// Record is what a pod's folder keeps of its manifest, for commands that are given only a
// name. The runtime's state does not depend on it.
type Record struct {
	Endpoint string  `json:"endpoint"`
	Pod      *v1.Pod `json:"pod"`
	// Started is when the first of the pod's sandboxes was made; it may be collected since.
	Started time.Time `json:"started,omitzero"`
}

// ErrNoRecord is a pod that was not made here.
var ErrNoRecord = errors.New("no record of the pod")

func (m *Manager) recordPath(uid string) string {
	return filepath.Join(m.o.Dirs.Pod(uid), "pod.json")
}

// writeRecord keeps the manifest. It may hold secrets in its environment: root only.
func (m *Manager) writeRecord(p *v1.Pod, status *pod.Status) error {
	started := m.started(p, status)
	if started.IsZero() {
		started = m.o.Now()
	}
	data, err := json.Marshal(Record{Endpoint: m.o.Endpoint, Pod: p, Started: started})
	if err != nil {
		return fmt.Errorf("encode the pod: %w", err)
	}
	path := m.recordPath(string(p.UID))
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("make the pod's folder: %w", err)
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("keep the manifest: %w", err)
	}
	return os.Rename(tmp, path)
}

// Record reads what is kept of a pod; ErrNoRecord says that there is none.
func (m *Manager) Record(uid string) (*Record, error) {
	if !pod.IsUID(uid) {
		return nil, ErrNoRecord
	}
	data, err := os.ReadFile(m.recordPath(uid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, ErrNoRecord
	}
	if err != nil {
		return nil, err
	}
	record := &Record{}
	if err := json.Unmarshal(data, record); err != nil || record.Pod == nil {
		return nil, fmt.Errorf("%w: %s cannot be read", ErrNoRecord, m.recordPath(uid))
	}
	return record, nil
}

// FullName is "namespace/name".
func FullName(p *v1.Pod) string { return p.Namespace + "/" + p.Name }

// Prepare gives a pod of an input its uid and the kubelet's annotations. The pods of a
// folder are others than those of apply, whatever their manifests say.
func Prepare(p *v1.Pod, folder string, now time.Time) error {
	if folder != "" {
		p.UID = types.UID("folder " + folder + " " + string(p.UID))
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
	if folder != "" {
		p.Annotations[pod.ConfigSourceAnnotation] = "file"
		p.Annotations[pod.ConfigHashAnnotation] = string(uid)
		p.Annotations[pod.FolderAnnotation] = folder
	}
	return nil
}

// Owner is who made a pod: neither is set for a kubelet, crictl, or another tool.
type Owner struct {
	Apply  bool   // Up, on this host and runtime
	Folder string // Loop, of this folder
}

func (o Owner) String() string {
	switch {
	case o.Folder != "":
		return "crishim sync " + o.Folder
	case o.Apply:
		return "crishim apply"
	}
	return "another tool"
}

// OwnerOf tells from a pod's annotations and its record who made it.
func (m *Manager) OwnerOf(p *pod.Pod) Owner {
	for _, s := range p.Sandboxes {
		if folder := s.GetAnnotations()[pod.FolderAnnotation]; folder != "" {
			return Owner{Folder: folder}
		}
	}
	record, err := m.Record(p.UID)
	if err != nil || record.Endpoint != m.o.Endpoint {
		return Owner{}
	}
	folder := record.Pod.Annotations[pod.FolderAnnotation] // its sandboxes are gone
	return Owner{Apply: folder == "", Folder: folder}
}

// ForeignPodError is a pod of the same name that somebody else made.
type ForeignPodError struct {
	Name, UID string
	Owner     Owner
}

func (e *ForeignPodError) Error() string {
	return fmt.Sprintf("a pod %s that %s made is there already (uid %s)", e.Name, e.Owner, e.UID)
}
