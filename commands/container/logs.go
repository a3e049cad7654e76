package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/logfile"
	"github.com/crishim/crishim/output"
)

type logsOptions struct {
	targets                      []string
	filter                       cli.Filter // instead of targets
	attempt                      *uint32
	previous, reopen, timestamps bool
	allContainers                bool // targets are pods
	restarts                     bool // wait for the next attempt as long as there is a pod
	limit                        int64
	grep                         cli.Pattern
	format                       string
	read                         logfile.Options
	now                          func() time.Time
	color                        bool
	crictl                       bool // each piece of a partial line has its time
}

func NewLogs(env *cli.Env) *urfave.Command {
	o := &logsOptions{limit: -1, read: logfile.Options{Tail: -1}, now: env.Now}
	return &urfave.Command{
		Name:      "logs",
		Usage:     "show the logs of containers",
		ArgsUsage: "CONTAINER...",
		Description: cli.WithExamples("Reads the log files of containers, rotated and compressed ones included. The container's stdout goes to stdout, its stderr to stderr. Lines of several containers begin with pod/container, or namespace/pod/container where pods have the same name.",
			"crishim logs web", "crishim logs -f --tail 10 web", "crishim logs --all-containers web", "crishim logs --since 5m --stream stderr web", "crishim logs -t --label app=web"),
		Flags: []urfave.Flag{
			cli.BoolFlag(&o.read.Follow, "follow", "follow until the container ends, and its next attempt if it is restarted at once", "f"),
			cli.BoolFlag(&o.restarts, "follow-restarts", "follow each next attempt until the pod ends"),
			cli.BoolFlag(&o.previous, "previous", "show the attempt before this one, in a crash loop the last that ended", "p"),
			cli.BoolFlag(&o.allContainers, "all-containers", "show all containers of pods: arguments are pods"),
			cli.BoolFlag(&o.reopen, "reopen", "tell the runtime to reopen the log file first", "r"),
			cli.Typed(&o.read.Tail, parseTail, "tail", "show the last `N` lines only (all: every line)", "n").Number(),
			cli.IntFlag(&o.limit, "limit-bytes", "end after `N` bytes"),
			cli.Typed(&o.read.Since, func(text string) (time.Time, error) { return parseTime(env, text) }, "since", "show logs since `TIME`: 5m ago, 2026-01-02T15:04:05Z, seconds since 1970"),
			cli.Typed(&o.read.Until, func(text string) (time.Time, error) { return parseTime(env, text) }, "until", "show logs before `TIME`"),
			cli.BoolFlag(&o.timestamps, "timestamps", "prefix each line with its time", "t"),
			cli.WordFlag(&o.read.Stream, []string{logfile.Stdout, logfile.Stderr}, "stream", "show only `STREAM`: stdout, stderr", "s"),
			cli.Typed(&o.grep, cli.ParsePattern, "grep", "show only lines that match `REGEX`"),
			o.filter.LabelFlag("all containers"),
			cli.SelectorFlag(&o.filter.Selector, "l"),
			o.filter.In.ContainerFlag(),
			o.filter.In.NamespaceFlag(),
			cli.AttemptFlag(&o.attempt),
			cli.WordFlag(&o.format, []string{"text", "json"}, "output", "`FORMAT`: text, json", "o"),
		},
		Action: env.Connected(o.check, o.run),
	}
}

// parseTail takes docker's all, too.
func parseTail(text string) (int, error) {
	if text == "all" {
		return -1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, errors.New("must be a number or all")
	}
	return n, nil
}

// parseTime parses a time, or a duration before now. A time without zone is local. 0 is the epoch, as for
// docker and crictl.
func parseTime(env *cli.Env, text string) (time.Time, error) {
	switch text {
	case "":
		return time.Time{}, nil
	case "0":
		return time.Unix(0, 0), nil
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

func (o *logsOptions) check(env *cli.Env, c *urfave.Context) error {
	o.crictl = env.Compat
	o.targets, o.read.Follow, o.color = c.Args().Slice(), o.read.Follow || o.restarts, env.Color()
	if o.allContainers && o.filter.In.Container != "" {
		return cli.Usagef("--container and --all-containers: choose one")
	}
	if o.restarts && (o.previous || o.attempt != nil) {
		return cli.Usagef("--follow-restarts cannot go with --previous or --attempt, which name one attempt")
	}
	if o.filter.Given() {
		o.filter.All = true
		if o.filter.In.Container != "" {
			o.filter.Name = cli.Exactly(o.filter.In.Container)
		}
		return o.filter.Check(true)
	}
	return cli.ArgCount(c, 1, -1)
}

func (o *logsOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	containers, failed := o.containers(ctx, env, conn)
	if len(containers) == 0 && failed == nil { // an empty log would look the same
		env.Warn("no container matches the selector")
	}
	containers = cli.NamePods(ctx, conn, containers)
	writer := &logWriter{
		out: env.Out, err: env.Err, o: *o, left: o.limit, pending: lines{},
		prefix: len(containers) > 1 || o.allContainers, namespaces: cli.NeedNamespaces(containers), colors: map[cli.Source]int{},
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
	if err == nil && len(containers) == 1 && (writer.wrote == 0 || env.OutTerminal) {
		o.noteEnd(ctx, env, conn, containers[0])
	}
	return err
}

// noteEnd tells people on stderr how a container failed whose log may not: it was never started, or killed.
func (o *logsOptions) noteEnd(ctx context.Context, env *cli.Env, conn *client.Conn, c *runtimeapi.Container) {
	if o.attempt != nil || env.Compat || o.format == "json" {
		return
	}
	res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
	s := res.GetStatus()
	if err != nil || s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetExitCode() == 0 {
		return // the log is all there is to show
	}
	text := fmt.Sprintf("container %s exited with status %d", cli.ContainerName(c), s.GetExitCode())
	if s.GetReason() != "" {
		text += " (" + s.GetReason() + ")"
	}
	if message := kuberuntime.OneLine(cli.StartFailure(s.GetMessage())); message != "" {
		text += ": " + message
	}
	env.Note("crishim: %s", text)
	if from := cli.SourceOf(c); from.Pod != "" {
		env.Note("hint: `crishim describe %s` shows more", from.PodRef())
	}
}

func (o *logsOptions) containers(ctx context.Context, env *cli.Env, conn *client.Conn) (found []*runtimeapi.Container, err error) {
	if len(o.filter.Selector) > 0 {
		if found, err = o.filter.Containers(ctx, conn); err != nil {
			return nil, err
		}
	}
	failed := cli.Each(o.targets, func(ref string) error {
		if o.allContainers {
			all, err := o.ofPod(ctx, conn, ref)
			found = append(found, all...)
			return err
		}
		query := o.filter.In.Query(ref, client.PreferRunning)
		query.Attempt = o.attempt
		c, err := conn.FindContainer(ctx, query)
		switch code := status.Code(err); {
		case env.Compat:
		case code == codes.FailedPrecondition:
			if _, noPod := conn.Pod(ctx, ref, client.Any); noPod == nil { // it has several containers
				err = cli.WithHint(err, "give one of these names, or --all-containers")
			}
		case code == codes.NotFound:
			if pod, why := kuberuntime.WhyNoContainers(kuberuntime.DefaultDirs(env.LookupEnv), ref); why != "" {
				err = cli.WithHint(fmt.Errorf("pod %s has no container yet: %s", pod, why), "`crishim describe %s` shows more", ref)
			}
		}
		if err == nil && o.previous {
			c, err = previousAttempt(ctx, conn, ref, c, env.Compat)
		}
		if err == nil {
			found = append(found, c)
		}
		return err
	})
	return found, failed
}

// ofPod returns the newest attempt of each container of a pod, the oldest first; with --previous
// the attempt before, of those that have one.
func (o *logsOptions) ofPod(ctx context.Context, conn *client.Conn, ref string) (found []*runtimeapi.Container, err error) {
	pod, err := conn.FindPod(ctx, client.Query{Ref: ref, Want: client.PreferRunning, Namespace: o.filter.In.Namespace})
	if err != nil {
		return nil, err
	}
	all, err := conn.ContainersOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, byAge)
	seen := map[string]bool{}
	for _, c := range slices.Backward(all) {
		name := c.GetMetadata().GetName()
		if seen[name] {
			continue
		}
		seen[name] = true
		if o.previous {
			if c, err = previousAttempt(ctx, conn, cli.ContainerName(c), c, false); err != nil {
				continue
			}
		}
		found = append(found, c)
	}
	slices.Reverse(found)
	if len(found) == 0 && len(all) > 0 {
		return nil, fmt.Errorf("no container of pod %s has a previous attempt", ref)
	}
	return found, nil
}

// previousAttempt returns the newest attempt before c that ended. Between two attempts of a container that
// crashes that is c itself, as for kubectl: of crictl's it is the one with the number before.
func previousAttempt(ctx context.Context, conn *client.Conn, ref string, c *runtimeapi.Container, exact bool) (*runtimeapi.Container, error) {
	attempt := c.GetMetadata().GetAttempt()
	if attempt == 0 {
		return nil, fmt.Errorf("container %s has no previous attempt", ref)
	}
	attempts, podReady, err := attemptsOf(ctx, conn, c)
	if err != nil {
		return nil, err
	}
	if podReady && !exact && c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
		res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		if err != nil {
			return nil, err
		}
		if res.GetStatus().GetExitCode() != 0 {
			return c, nil
		}
	}
	for _, other := range slices.Backward(attempts) {
		ended := other.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
		if n := other.GetMetadata().GetAttempt(); n == attempt-1 || !exact && ended && n < attempt {
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
	wrote              int64
	pending            lines
	colors             map[cli.Source]int // of the prefixes on a terminal, by the order of their first lines
}

// prefixColors are those of docker compose: no red, which is for what went wrong.
var prefixColors = []int{36, 33, 32, 35, 34, 96, 93, 92, 95, 94}

// entry writes one entry, or waits for the end of its line.
func (w *logWriter) entry(from cli.Source, e logfile.Entry) error {
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
