package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/logfile"
	"github.com/crishim/crishim/output"
)

// alignedTime is RFC 3339 with all nine digits.
const alignedTime = "2006-01-02T15:04:05.000000000Z07:00"

var errLimit = errors.New("limit of bytes reached")

func withoutLimit(err error) error {
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// maxPending bounds a line in memory. A container may never end its line.
const maxPending = 16 << 20

type lineKey struct {
	from   cli.ContainerPath
	stream string
}

// lines holds incomplete lines, which come in several entries.
type lines map[lineKey]logfile.Entry

// add returns the line if it is complete or has the maximum length.
func (l lines) add(key lineKey, e logfile.Entry) (line []byte, ok bool) {
	partial := e.Partial()
	e.Text = append(l[key].Text, e.Text...)
	if partial && len(e.Text) < maxPending {
		l[key] = e
		return nil, false
	}
	delete(l, key)
	return e.Text, true
}

// prefixColors are the colors of docker compose, without red.
var prefixColors = []int{36, 33, 32, 35, 34, 96, 93, 92, 95, 94}

// logWriter writes entries in the format of the options. With prefixes, times, a pattern or JSON it writes only whole
// lines, since containers write at the same time.
type logWriter struct {
	mu  sync.Mutex
	out io.Writer
	err io.Writer
	o   logsOptions
	// prefix puts the container's name before each line. namespaces adds the namespace before the name.
	prefix, namespaces bool
	left               int64 // bytes; below 0: no limit
	wrote              int64
	pending            lines
	colors             map[cli.ContainerPath]int // color of each container's prefix on a terminal, chosen at its first line
}

// entry writes one entry. In the modes that write only whole lines, it keeps an incomplete line until its end arrives.
func (w *logWriter) entry(from cli.ContainerPath, e logfile.Entry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.o.grep.Regexp != nil || w.o.format == "json" || w.prefix || w.o.timestamps && !w.o.crictl {
		line, whole := w.pending.add(lineKey{from, e.Stream}, e)
		if !whole {
			return nil
		}
		if e.Partial() {
			line = append(line, '\n')
		}
		e.Text = line
	}
	return w.write(from, e)
}

// finish writes the incomplete lines. A newline is added only if something may follow.
func (w *logWriter) finish() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, e := range w.pending {
		if w.prefix || len(w.pending) > 1 {
			e.Text = append(e.Text, '\n')
		}
		if err := w.write(key.from, e); err != nil {
			return withoutLimit(err)
		}
	}
	return nil
}

func (w *logWriter) write(from cli.ContainerPath, e logfile.Entry) error {
	text := bytes.TrimSuffix(e.Text, []byte("\n"))
	if w.o.grep.Regexp != nil && !w.o.grep.Match(text) {
		return nil
	}
	var line []byte
	to := w.out
	if w.o.format == "json" {
		var b bytes.Buffer
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		err := encoder.Encode(struct {
			Time      time.Time `json:"time"`
			Stream    string    `json:"stream"`
			Namespace string    `json:"namespace,omitempty"`
			Pod       string    `json:"pod,omitempty"`
			Container string    `json:"container"`
			Log       string    `json:"log"`
		}{e.Time, e.Stream, from.Namespace, from.Pod, from.Container, string(text)})
		if err != nil {
			return err
		}
		line = output.EscapeJSON(b.Bytes())
	} else {
		if e.Stream == logfile.Stderr {
			to = w.err
		}
		if w.prefix {
			name := from.Name()
			if w.namespaces {
				name = from.FullName()
			}
			name = output.Sanitize(name) + " |"
			if w.o.color {
				if _, known := w.colors[from]; !known {
					w.colors[from] = prefixColors[len(w.colors)%len(prefixColors)]
				}
				name = fmt.Sprintf("\x1b[%dm%s\x1b[0m", w.colors[from], name)
			}
			line = append(line, name+" "...)
		}
		if w.o.timestamps && !e.Time.IsZero() {
			line = append(line, e.Time.Format(alignedTime)+" "...)
		}
		line = append(line, e.Text...)
	}
	if w.left >= 0 {
		line = line[:min(int64(len(line)), w.left)]
		w.left -= int64(len(line))
	}
	w.wrote += int64(len(line))
	if _, err := to.Write(line); err != nil {
		return err
	}
	if w.left == 0 {
		return errLimit
	}
	return nil
}

type mergedLine struct {
	from  cli.ContainerPath
	entry logfile.Entry
}

// errMerged cancels the log readers after a failed write to the output.
var errMerged = errors.New("the output has ended")

// readMerged writes the lines of several logs in the order of time. A log is read only as fast as its lines are written.
func readMerged(ctx context.Context, conn *client.Conn, o logsOptions, containers []*runtimeapi.Container, w *logWriter) error {
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	logs, errs := make([]chan mergedLine, len(containers)), make([]error, len(containers))
	var readers sync.WaitGroup
	for i, c := range containers {
		logs[i] = make(chan mergedLine, 16)
		readers.Go(func() {
			defer close(logs[i])
			errs[i] = readLog(reading, conn, o, c, func(from cli.ContainerPath, e logfile.Entry) error {
				select {
				case logs[i] <- mergedLine{from, e}:
					return nil
				case <-reading.Done():
					return context.Cause(reading)
				}
			})
		})
	}
	failed := inOrder(logs, w.entry)
	stop(errMerged)
	readers.Wait()
	for i, err := range errs {
		ended := errors.Is(err, errMerged) || errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled
		if ended && failed != nil && ctx.Err() == nil {
			errs[i] = nil // stop has canceled this reader
		}
	}
	return withoutLimit(cli.Join(append(errs, failed, w.finish())...))
}

// inOrder calls emit for the lines of all logs, the oldest first.
func inOrder(logs []chan mergedLine, emit func(cli.ContainerPath, logfile.Entry) error) error {
	next := make([]*mergedLine, len(logs)) // next line of each log; nil: to be read
	for {
		first := -1
		for i := range logs {
			if next[i] == nil {
				if l, ok := <-logs[i]; ok {
					next[i] = &l
				}
			}
			if next[i] != nil && (first < 0 || next[i].entry.Time.Before(next[first].entry.Time)) {
				first = i
			}
		}
		if first < 0 {
			return nil
		}
		if err := emit(next[first].from, next[first].entry); err != nil {
			return err
		}
		next[first] = nil
	}
}
