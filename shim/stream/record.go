package stream

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/crishim/crishim/shim/host/proctree"
)

const (
	recordSuffix = ".json"
	recordTime   = 2 * time.Second // for one process to be ended
)

// records is a directory with a file for each exec that runs. A shim that is
// killed leaves them, and the next one reads them with [EndRecorded].
type records struct{ dir string }

// record is the file of one exec.
type record struct {
	path string // "": nothing is written down

	mu   sync.Mutex
	done bool // the exec has ended, found comes too late
	note note
}

// note is what a file holds. Process is missing until the engine has started it.
type note struct {
	Exec      string            `json:"exec"`
	Container string            `json:"container"`
	Boot      string            `json:"boot"`
	Process   *proctree.Process `json:"process,omitempty"`
}

// begin writes down an exec that is about to start. That it cannot be written
// down is no reason not to start it.
func (r records) begin(execID, containerID string) *record {
	if r.dir == "" {
		return &record{}
	}
	rec := &record{
		path: filepath.Join(r.dir, filepath.Base(execID)+recordSuffix),
		note: note{Exec: execID, Container: containerID, Boot: bootID()},
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return &record{}
	}
	rec.write()
	return rec
}

// close removes the directory when nothing is left in it.
func (r records) close() {
	if r.dir != "" {
		_ = os.Remove(r.dir)
	}
}

// found adds the process.
func (r *record) found(p proctree.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note.Process = &p
	r.write()
}

// write replaces the file in one step, so that it is never read half written.
func (r *record) write() {
	if r.path == "" || r.done {
		return
	}
	text, err := json.Marshal(r.note)
	if err != nil {
		return
	}
	fresh := r.path + ".new"
	if err := os.WriteFile(fresh, text, 0o600); err != nil || os.Rename(fresh, r.path) != nil {
		_ = os.Remove(fresh) // what a full disk has of it
	}
}

func (r *record) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
	if r.path != "" {
		_ = os.Remove(r.path)
	}
}

// EndRecorded ends the processes that the records of a killed shim name, with
// their descendants, and removes the records. The engine is asked for the
// process of an exec that was being started when the shim died; it may be nil.
func EndRecorded(ctx context.Context, dir string, engine ExecInspector) error {
	if dir == "" {
		return nil
	}
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		path := filepath.Join(dir, file.Name())
		if strings.HasSuffix(file.Name(), recordSuffix) {
			errs = append(errs, endRecorded(ctx, path, engine))
		}
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}

func endRecorded(ctx context.Context, path string, engine ExecInspector) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var n note
	if err := json.Unmarshal(text, &n); err != nil {
		return err
	}
	if n.Boot != bootID() {
		return nil // nothing outlives a restart of the machine
	}
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	switch {
	case n.Process != nil && n.Process.InContainer(n.Container):
		return proctree.Kill(ctx, *n.Process, n.Container)
	case n.Process == nil && engine != nil:
		return killExec(ctx, engine, n.Exec, n.Container)
	}
	return nil
}

func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
