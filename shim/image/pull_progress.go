package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

var errNoProgress = errors.New("no progress")

// Progress is one message of the engine about a pull.
type Progress struct {
	ID             string `json:"id"` // layer
	Status         string `json:"status"`
	ProgressDetail struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
	// Engines from API 1.48 on only fill ErrorDetail.
	Error       string `json:"error"`
	ErrorDetail *struct {
		Message string `json:"message"`
	} `json:"errorDetail"`
}

func (p Progress) failure() string {
	if p.ErrorDetail != nil && p.ErrorDetail.Message != "" {
		return p.ErrorDetail.Message
	}
	return p.Error
}

// streamError is an error that the engine wrote into the progress messages;
// the call itself has already answered with success by then.
type streamError struct{ text string }

func (e *streamError) Error() string { return e.text }

// readProgress reads messages up to the end, or to the first that is an error.
func readProgress(r io.Reader, seen func(Progress)) error {
	d := json.NewDecoder(r)
	for {
		var p Progress
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the engine's pull messages: %w", err)
		}
		if text := p.failure(); text != "" {
			return &streamError{text}
		}
		seen(p)
	}
}

// watchdog calls expire when no message was seen for a while. It is patient
// while a layer is being unpacked: the engine says nothing for as long as one
// large file takes, and nothing is stuck.
type watchdog struct {
	mu       sync.Mutex
	deadline time.Duration
	timer    *time.Timer
	busy     map[string]bool // layers being unpacked
}

func newWatchdog(deadline time.Duration, expire func()) *watchdog {
	w := &watchdog{deadline: deadline, busy: map[string]bool{}}
	w.timer = time.AfterFunc(deadline, expire)
	return w
}

func (w *watchdog) seen(p Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch p.Status {
	case "Extracting", "Verifying Checksum":
		w.busy[p.ID] = true
	default:
		delete(w.busy, p.ID)
	}
	if len(w.busy) > 0 {
		w.timer.Stop()
		return
	}
	w.timer.Reset(w.deadline)
}

func (w *watchdog) stop() { w.timer.Stop() }
