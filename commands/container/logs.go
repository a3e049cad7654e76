package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/logfile"
	"github.com/crishim/crishim/output"
)

type logsOptions struct {
	targets                      []string
	filter                       cli.Filter // instead of targets
	attempt                      *uint32
	previous, reopen, timestamps bool
	restarts                     bool // wait for the next attempt as long as there is a pod
	limit                        int64
	grep                         cli.Pattern
	format                       string
	read                         logfile.Options
	now                          func() time.Time
}

func NewLogs(env *cli.Env) *urfave.Command {
	o := &logsOptions{limit: -1, read: logfile.Options{Tail: -1}, now: env.Now}
	return &urfave.Command{
		Name:      "logs",
		Usage:     "show the logs of containers",
		ArgsUsage: "CONTAINER...",
		Description: cli.WithExamples("Reads the log files of containers, rotated and compressed ones included. The container's stdout goes to stdout, its stderr to stderr. Lines of several containers begin with pod/container, or namespace/pod/container where pods have the same name.",
			"crishim logs web", "crishim logs -f --tail 10 web", "crishim logs --since 5m --stream stderr web", "crishim logs -t --label app=web"),
		Flags: []urfave.Flag{
			cli.BoolFlag(&o.read.Follow, "follow", "follow until the container ends, and its next attempt if it is restarted at once", "f"),
			cli.BoolFlag(&o.restarts, "follow-restarts", "follow each next attempt until the pod ends"),
			cli.BoolFlag(&o.previous, "previous", "show the attempt before this one", "p"),
			cli.BoolFlag(&o.reopen, "reopen", "tell the runtime to reopen the log file first", "r"),
			cli.IntFlag(&o.read.Tail, "tail", "show the last `N` lines only", "n"),
			cli.Int64Flag(&o.limit, "limit-bytes", "end after `N` bytes"),
			cli.Typed(&o.read.Since, func(text string) (time.Time, error) { return parseTime(env, text) }, "since", "show logs since `TIME`: 5m ago, 2026-01-02T15:04:05Z, seconds since 1970"),
			cli.Typed(&o.read.Until, func(text string) (time.Time, error) { return parseTime(env, text) }, "until", "show logs before `TIME`"),
			cli.BoolFlag(&o.timestamps, "timestamps", "prefix each line with its time", "t"),
			cli.WordFlag(&o.read.Stream, []string{logfile.Stdout, logfile.Stderr}, "stream", "show only `STREAM`: stdout, stderr", "s"),
			cli.Typed(&o.grep, cli.ParsePattern, "grep", "show only lines that match `REGEX`"),
			o.filter.LabelFlag("all containers"),
			cli.SelectorFlag(&o.filter.Selector),
			cli.AttemptFlag(&o.attempt),
			cli.WordFlag(&o.format, []string{"text", "json"}, "output", "`FORMAT`: text, json", "o"),
		},
		Action: env.Connected(o.check, o.run),
	}
}

// parseTime parses a time, or a duration before now. A time without zone is local.
func parseTime(env *cli.Env, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return env.Now().Add(-ago), nil
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		whole := int64(seconds)
		return time.Unix(whole, int64((seconds-float64(whole))*1e9)), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, errors.New("must be a duration such as 5m, a time such as 2026-01-02T15:04:05Z, or seconds since 1970")
}

func (o *logsOptions) check(_ *cli.Env, c *urfave.Context) error {
	o.targets, o.read.Follow = c.Args().Slice(), o.read.Follow || o.restarts
	if o.restarts && (o.previous || o.attempt != nil) {
		return cli.Usagef("--follow-restarts cannot go with --previous or --attempt, which name one attempt")
	}
	if o.filter.Given() {
		o.filter.All = true
		return o.filter.Check(true)
	}
	return cli.ArgCount(c, 1, -1)
}

func (o *logsOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	containers, failed := o.containers(ctx, conn)
	if len(containers) == 0 && failed == nil { // an empty log would look the same
		env.Warn("no container matches the selector")
	}
	containers = cli.NamePods(ctx, conn, containers)
	writer := &logWriter{
		out: env.Out, err: env.Err, o: *o, left: o.limit, pending: lines{},
		prefix: len(containers) > 1, namespaces: cli.NeedNamespaces(containers),
	}
	if !o.read.Follow && len(containers) > 1 {
		return cli.Join(failed, readMerged(ctx, conn, *o, containers, writer))
	}
	read := readLog
	if o.read.Follow && (o.restarts || !env.Compat && !o.previous && o.attempt == nil) {
		read = followLog
	}
	var reading sync.WaitGroup
	errs := make([]error, len(containers))
	for i, c := range containers {
		reading.Go(func() { errs[i] = withoutLimit(read(ctx, conn, *o, c, writer.entry)) })
	}
	reading.Wait()
	err := cli.Join(append(errs, failed, writer.finish())...)
	if o.read.Follow && ctx.Err() != nil && failed == nil {
		return cli.ErrFollowed
	}
	return err
}

func (o *logsOptions) containers(ctx context.Context, conn *client.Conn) (found []*runtimeapi.Container, err error) {
	if len(o.filter.Selector) > 0 {
		if found, err = o.filter.Containers(ctx, conn); err != nil {
			return nil, err
		}
	}
	failed := cli.Each(o.targets, func(ref string) error {
		c, err := conn.FindContainer(ctx, client.Query{Ref: ref, Want: client.PreferRunning, Attempt: o.attempt})
		if err == nil && o.previous {
			c, err = previousAttempt(ctx, conn, ref, c)
		}
		if err == nil {
			found = append(found, c)
		}
		return err
	})
	return found, failed
}

func previousAttempt(ctx context.Context, conn *client.Conn, ref string, c *runtimeapi.Container) (*runtimeapi.Container, error) {
	if c.GetMetadata().GetAttempt() == 0 {
		return nil, fmt.Errorf("container %s has no previous attempt", ref)
	}
	all, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: c.GetPodSandboxId()}})
	if err != nil {
		return nil, err
	}
	for _, other := range all.GetContainers() {
		if other.GetMetadata().GetName() == c.GetMetadata().GetName() && other.GetMetadata().GetAttempt() == c.GetMetadata().GetAttempt()-1 {
			return other, nil
		}
	}
	return nil, fmt.Errorf("the previous attempt of container %s is removed", ref)
}

// alignedTime is RFC 3339 with all nine digits, so that lines stay aligned.
const alignedTime = "2006-01-02T15:04:05.000000000Z07:00"

// errLimit ends reading at --limit-bytes.
var errLimit = errors.New("limit of bytes reached")

func withoutLimit(err error) error {
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// maxPending is the longest line that is kept until its end. A container may never end its line.
const maxPending = 16 << 20

// lineKey identifies one of the lines that are incomplete at the same time.
type lineKey struct {
	from   cli.Source
	stream string
}

// lines are the incomplete ones, which come in several entries.
type lines map[lineKey][]byte

// add returns the line if it is complete, or as long as a line may be.
func (l lines) add(key lineKey, e logfile.Entry) (line []byte, ok bool) {
	line = append(l[key], e.Text...)
	if e.Partial() && len(line) < maxPending {
		l[key] = line
		return nil, false
	}
	delete(l, key)
	return line, true
}

// logWriter writes entries to stdout and stderr in the form that the options ask for. Containers may
// write at the same time: where that matters only whole lines are written.
type logWriter struct {
	mu  sync.Mutex
	out io.Writer
	err io.Writer
	o   logsOptions
	// prefix is for lines to begin with their container's name, namespaces for that to have the namespace.
	prefix, namespaces bool
	left               int64 // bytes; below 0: no limit
	pending            lines
}

// entry writes one entry, or waits for the end of its line.
func (w *logWriter) entry(from cli.Source, e logfile.Entry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.o.grep.Regexp != nil || w.o.format == "json" || w.prefix || w.o.timestamps {
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

// finish writes the lines that were never ended.
func (w *logWriter) finish() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, text := range w.pending {
		if err := w.write(key.from, logfile.Entry{Stream: key.stream, Text: append(text, '\n')}); err != nil {
			return withoutLimit(err)
		}
	}
	return nil
}

func (w *logWriter) write(from cli.Source, e logfile.Entry) error {
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
			line = append(line, output.Sanitize(name)+" | "...)
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
	if _, err := to.Write(line); err != nil {
		return err
	}
	if w.left == 0 {
		return errLimit
	}
	return nil
}
