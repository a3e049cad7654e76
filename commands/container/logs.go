package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	urfave "github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/logfile"
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
}

// NewLogs shows what containers wrote.
func NewLogs(env *cli.Env) *urfave.Command {
	o := &logsOptions{limit: -1, read: logfile.Options{Tail: -1}}
	return &urfave.Command{
		Name:      "logs",
		Usage:     "show what containers wrote",
		ArgsUsage: "CONTAINER...",
		Description: cli.WithExamples("Reads the log files of containers, rotated and compressed ones included. What went to stdout comes on stdout, what went to stderr on stderr. Lines of several containers begin with pod/container, or namespace/pod/container where pods have the same name.",
			"crishim logs web", "crishim logs -f --tail 10 web", "crishim logs --since 5m --stream stderr web", "crishim logs -t --label app=web"),
		Flags: []urfave.Flag{
			cli.BoolFlag(&o.read.Follow, "follow", "follow until the container ends, and its next attempt if it is restarted at once", "f"),
			cli.BoolFlag(&o.restarts, "follow-restarts", "follow each next attempt until the pod ends"),
			cli.BoolFlag(&o.previous, "previous", "show the attempt before this one", "p"),
			cli.BoolFlag(&o.reopen, "reopen", "tell the runtime to reopen the log file first", "r"),
			cli.IntFlag(&o.read.Tail, "tail", "show the last `N` lines only", "n"),
			cli.Int64Flag(&o.limit, "limit-bytes", "end after `N` bytes"),
			cli.Typed(&o.read.Since, func(text string) (time.Time, error) { return parseTime(env, text) }, "since", "from `TIME` on: 5m ago, 2026-01-02T15:04:05Z, seconds since 1970"),
			cli.Typed(&o.read.Until, func(text string) (time.Time, error) { return parseTime(env, text) }, "until", "up to `TIME`"),
			cli.BoolFlag(&o.timestamps, "timestamps", "begin each line with its time", "t"),
			cli.WordFlag(&o.read.Stream, []string{logfile.Stdout, logfile.Stderr}, "stream", "only `STREAM`: stdout, stderr", "s"),
			cli.Typed(&o.grep, cli.ParsePattern, "grep", "show only lines that match `REGEX`"),
			o.filter.LabelFlag("all containers"),
			cli.SelectorFlag(&o.filter.Selector),
			cli.AttemptFlag(&o.attempt),
			cli.WordFlag(&o.format, []string{"text", "json"}, "output", "`FORMAT`: text, json", "o"),
		},
		Action: env.Connected(o.check, o.run),
	}
}

// parseTime reads a time, or how long ago it was. A time without zone is local.
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
	writer := newLogWriter(env, *o, containers)
	if !o.read.Follow && len(containers) > 1 {
		return cli.Join(failed, readMerged(ctx, conn, *o, containers, writer))
	}
	read := readLog
	if o.read.Follow && (o.restarts || !env.Compat && !o.previous && o.attempt == nil) {
		read = func(ctx context.Context, conn *client.Conn, o logsOptions, c *runtimeapi.Container, emit func(cli.Source, logfile.Entry) error) error {
			return followLog(ctx, env.Now, conn, o, c, emit)
		}
	}
	var group errgroup.Group
	errs := make([]error, len(containers))
	for i, c := range containers {
		group.Go(func() error { // its own error: one log that ends badly ends no other
			errs[i] = withoutLimit(read(ctx, conn, *o, c, writer.entry))
			return nil
		})
	}
	_ = group.Wait() // its members keep their errors
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
	before := c.GetMetadata().GetAttempt() - 1
	all, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: c.GetPodSandboxId()}})
	if err != nil {
		return nil, err
	}
	for _, other := range all.GetContainers() {
		if other.GetMetadata().GetName() == c.GetMetadata().GetName() && other.GetMetadata().GetAttempt() == before {
			return other, nil
		}
	}
	return nil, fmt.Errorf("the previous attempt of container %s is removed", ref)
}

const (
	// restartPeriod is between two looks for an ended container's next attempt.
	restartPeriod = 250 * time.Millisecond
	// restartGrace is how long it is waited for without --follow-restarts: long enough for
	// one that restarts a container at once.
	restartGrace = 3 * time.Second
)

// followLog is readLog for --follow: it goes on in the container's next
// attempt.
func followLog(ctx context.Context, now func() time.Time, conn *client.Conn, o logsOptions, c *runtimeapi.Container, emit func(cli.Source, logfile.Entry) error) error {
	for {
		if err := readLog(ctx, conn, o, c, emit); err != nil {
			return err
		}
		if !o.read.Until.IsZero() && now().After(o.read.Until) { // all is written that --until lets through
			return nil
		}
		timeout := restartGrace
		switch {
		case o.restarts:
			timeout = -1
		case c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED:
			timeout = 0 // nobody is about to restart what ended long ago
		}
		next, err := nextAttempt(ctx, conn, c, timeout)
		if next == nil || err != nil {
			return err
		}
		c = next
		o.read.Tail, o.read.Since, o.reopen = -1, time.Time{}, false
	}
}

// nextAttempt waits for the attempt of a container behind c that has started,
// as long as the pod is there to start it and until a timeout (below 0: none);
// nil if there is none.
func nextAttempt(ctx context.Context, conn *client.Conn, c *runtimeapi.Container, timeout time.Duration) (*runtimeapi.Container, error) {
	for waited := time.Duration(0); ; waited += restartPeriod {
		pods, err := conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return nil, err
		}
		list, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err != nil {
			return nil, err
		}
		sandboxes, ready := sandboxesOf(pods.GetItems(), c)
		if next := attemptAfter(list.GetContainers(), c, sandboxes); next != nil {
			return cli.NamePods(ctx, conn, []*runtimeapi.Container{next})[0], nil
		}
		if !ready || timeout >= 0 && waited >= timeout {
			return nil, nil
		}
		if cli.Pause(ctx, restartPeriod) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// sandboxesOf are the ids of all sandboxes of a container's pod, and whether
// one of them is ready.
func sandboxesOf(pods []*runtimeapi.PodSandbox, c *runtimeapi.Container) (ids map[string]bool, ready bool) {
	ids = map[string]bool{c.GetPodSandboxId(): true}
	uid := c.GetLabels()[kube.LabelPodUID]
	for _, p := range pods {
		if p.GetId() == c.GetPodSandboxId() && uid == "" {
			uid = p.GetMetadata().GetUid()
		}
	}
	for _, p := range pods {
		if p.GetId() == c.GetPodSandboxId() || uid != "" && p.GetMetadata().GetUid() == uid {
			ids[p.GetId()] = true
			ready = ready || p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		}
	}
	return ids, ready
}

// attemptAfter is the attempt that came next after c among those that have
// started.
func attemptAfter(list []*runtimeapi.Container, c *runtimeapi.Container, sandboxes map[string]bool) *runtimeapi.Container {
	byAge := func(a, b *runtimeapi.Container) int {
		return cmp.Or(cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()), cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt()))
	}
	later := slices.DeleteFunc(list, func(other *runtimeapi.Container) bool {
		return other.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED || other.GetMetadata().GetName() != c.GetMetadata().GetName() ||
			!sandboxes[other.GetPodSandboxId()] || byAge(other, c) <= 0
	})
	if len(later) == 0 {
		return nil
	}
	return slices.MinFunc(later, byAge)
}
