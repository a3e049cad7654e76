package cli

import (
	"bytes"
	"io"
	"sync"

	"github.com/crishim/crishim/output"
)

// MaxLine is the longest line that is buffered: a writer may never end its line.
const MaxLine = 16 << 20

// LineWriter writes whole lines, each with a prefix, so that those of several writers do not mix.
type LineWriter struct {
	to     io.Writer
	lock   *sync.Mutex // shared by all that write to the same place
	prefix string
	rest   []byte // an unfinished line
}

// NewLineWriter makes a writer of lines with a prefix.
func NewLineWriter(to io.Writer, lock *sync.Mutex, prefix string) *LineWriter {
	return &LineWriter{to: to, lock: lock, prefix: prefix}
}

func (w *LineWriter) Write(p []byte) (int, error) {
	end := bytes.LastIndexByte(p, '\n') + 1 // there is none in w.rest
	if end > 0 {
		end += len(w.rest)
	}
	w.rest = append(w.rest, p...)
	if end == 0 && len(w.rest) >= MaxLine {
		w.rest = append(w.rest, '\n')
		end = len(w.rest)
	}
	if end == 0 {
		return len(p), nil
	}
	var b bytes.Buffer
	for line := range bytes.Lines(w.rest[:end]) {
		b.WriteString(w.prefix)
		b.Write(line)
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	_, err := w.to.Write(b.Bytes())
	w.rest = bytes.Clone(w.rest[end:])
	return len(p), err
}

// Flush ends an unfinished line.
func (w *LineWriter) Flush() error {
	if len(w.rest) == 0 {
		return nil
	}
	_, err := w.Write([]byte("\n"))
	return err
}

// safeLines are lines of text for a terminal, where those of one node must not look like another's.
type safeLines struct{ to io.Writer }

func (w safeLines) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.to, output.SanitizeText(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
