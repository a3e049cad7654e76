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
