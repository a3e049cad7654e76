package kuberuntime

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// maxEventLog is where a pod's event file starts over with its newer half.
const maxEventLog = 256 << 10

// AppendEvent keeps an event in the pod's folder, where describe finds it. A pod without a
// folder has no past to keep.
func AppendEvent(d pod.Dirs, e Event) error {
	if !pod.IsUID(e.UID) {
		return nil
	}
	path := eventPath(d, e.UID)
	if err := trimEvents(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = f.Write(append(line, '\n')) // one write: lines of several processes do not mix
	}
	return errors.Join(err, f.Close())
}

func eventPath(d pod.Dirs, uid string) string { return filepath.Join(d.Pod(uid), "events.jsonl") }

func trimEvents(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() < maxEventLog {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	half := text[len(text)/2:]
	half = half[bytes.IndexByte(half, '\n')+1:]
	return os.WriteFile(path, half, 0o600)
}

// ReadEvents are a pod's events, the oldest first.
func ReadEvents(d pod.Dirs, uid string) ([]Event, error) {
	if !pod.IsUID(uid) {
		return nil, nil
	}
	f, err := os.Open(eventPath(d, uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer f.Close()
	var out []Event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			out = append(out, e)
		}
	}
	return out, lines.Err()
}
