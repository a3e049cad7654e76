package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/internal/proctree"
	"github.com/crishim/crishim/internal/rundir"
)

const (
	recordTime = 2 * time.Second // for ending one process

	// RecordName matches the file name of a record, complete or being written.
	RecordName = `[0-9a-f]{64}\.json(\.new)?`
)

var (
	recordNames = lazyregexp.New(`^` + RecordName + `$`)
	engineIDs   = lazyregexp.New(`^[0-9a-f]{64}$`)
)

// records is a directory with a file for each running exec. If this shim is killed, the next one calls [EndRecorded].
type records struct {
	dir string
	log *slog.Logger
}

type record struct {
	name string
	note note

	mu   sync.Mutex
	root *os.Root // nil: not recorded, or the exec has ended
}

type note struct {
	Exec      string            `json:"exec"`
	Container string            `json:"container"`
	Boot      string            `json:"boot"`
	Process   *proctree.Process `json:"process,omitempty"`
}

// begin records an exec that is about to start. If that fails, the exec starts anyway.
func (r records) begin(execID, containerID string) *record {
	rec := &record{name: execID + ".json", note: note{Exec: execID, Container: containerID, Boot: proctree.BootID()}}
	if r.dir == "" || !engineIDs.MatchString(execID) {
		return rec
	}
	err := os.MkdirAll(r.dir, 0o700)
	if err == nil {
		rec.root, err = rundir.OpenPrivate(r.dir)
	}
	if err != nil {
		r.log.Warn("an exec session is not recorded; its processes keep running if this process is killed", "error", err)
		return rec
	}
	rec.write()
	return rec
}

func (r records) close() {
	if r.dir != "" {
		_ = os.Remove(r.dir)
	}
}

func (r *record) found(p proctree.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note.Process = &p
	r.write()
}

func (r *record) process() *proctree.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.note.Process
}

func (r *record) write() {
	if r.root == nil {
		return
	}
	text, err := json.Marshal(r.note)
	if err != nil {
		return
	}
	fresh := r.name + ".new"
	if err := r.root.WriteFile(fresh, text, 0o600); err != nil || r.root.Rename(fresh, r.name) != nil {
		_ = r.root.Remove(fresh) // partly written on a full disk
	}
}

func (r *record) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.root != nil {
		_ = r.root.Remove(r.name)
		_ = r.root.Close()
		r.root = nil
	}
}

// EndRecorded kills the processes in the records of a killed shim and their descendants. It asks the engine for the
// process of an exec that was being started. If engine is nil, such an exec is skipped.
func EndRecorded(ctx context.Context, dir string, engine ExecInspector) error {
	if dir == "" {
		return nil
	}
	root, err := rundir.OpenPrivate(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	files, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		if !recordNames.MatchString(file.Name()) {
			continue
		}
		if !strings.HasSuffix(file.Name(), ".new") {
			errs = append(errs, endRecorded(ctx, root, file.Name(), engine))
		}
		errs = append(errs, root.Remove(file.Name()))
	}
	return errors.Join(errs...)
}

func endRecorded(ctx context.Context, root *os.Root, name string, engine ExecInspector) error {
	text, err := rundir.ReadFile(root, name)
	if err != nil {
		return err
	}
	var n note
	if err := json.Unmarshal(text, &n); err != nil {
		return err
	}
	if n.Exec+".json" != name || !engineIDs.MatchString(n.Container) {
		return fmt.Errorf("record %s has an invalid exec or container id", name)
	}
	if n.Boot != proctree.BootID() {
		return nil // no process survives a reboot
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
