package cli

import (
	"bytes"
	"io"
	"sync"
)

// maxLine limits the buffer of an unfinished line.
const maxLine = 16 << 20

// PrefixWriter writes whole lines with a prefix, so that lines of several writers do not mix.
type PrefixWriter struct {
	to     io.Writer
	lock   *sync.Mutex // of all writers to the same place
	prefix string
	rest   []byte // an unfinished line
}

func NewPrefixWriter(to io.Writer, lock *sync.Mutex, prefix string) *PrefixWriter {
	return &PrefixWriter{to: to, lock: lock, prefix: prefix}
}

func (w *PrefixWriter) Write(p []byte) (int, error) {
	end := bytes.LastIndexByte(p, '\n') + 1 // w.rest has no newline
	if end > 0 {
		end += len(w.rest)
	}
	w.rest = append(w.rest, p...)
	if end == 0 && len(w.rest) >= maxLine {
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
func (w *PrefixWriter) Flush() error {
	if len(w.rest) == 0 {
		return nil
	}
	_, err := w.Write([]byte("\n"))
	return err
}

// safeLines sanitises lines on a terminal, so that the lines of a node cannot look like another node's.
type safeLines struct {
	io.Writer
	terminal bool
	clean    func(string) string
}

func (w safeLines) Write(p []byte) (int, error) {
	if !w.terminal {
		return w.Writer.Write(p)
	}
	_, err := io.WriteString(w.Writer, w.clean(string(p)))
	return len(p), err
}
