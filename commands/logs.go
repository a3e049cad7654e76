package commands

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/logfile"
)

// newLogs shows what containers wrote.
func newLogs(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "logs",
		Usage:     "show what containers wrote",
		ArgsUsage: "CONTAINER...",
		Description: describe("Reads the log files of containers, rotated and compressed ones included. What went to stdout comes on stdout, what went to stderr on stderr. Lines of several containers begin with pod/container, or namespace/pod/container where pods have the same name.",
			"crishim logs web", "crishim logs -f --tail 10 web", "crishim logs --since 5m --stream stderr web", "crishim logs -t --label app=web"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until the container ends, and in its next attempt if it is restarted at once"},
			&cli.BoolFlag{Name: "follow-restarts", Usage: "go on in each next attempt until the pod ends"},
			&cli.BoolFlag{Name: "previous", Aliases: []string{"p"}, Usage: "the attempt before this one"},
			&cli.BoolFlag{Name: "reopen", Aliases: []string{"r"}, Usage: "tell the runtime to open the log file anew first"},
			&cli.IntFlag{Name: "tail", Aliases: []string{"n"}, Value: -1, Usage: "the last `N` lines only"},
			&cli.Int64Flag{Name: "limit-bytes", Value: -1, Usage: "end after `N` bytes"},
			&cli.StringFlag{Name: "since", Usage: "from `TIME` on: 5m ago, 2026-01-02T15:04:05Z, seconds since 1970"},
			&cli.StringFlag{Name: "until", Usage: "up to `TIME`"},
			&cli.BoolFlag{Name: "timestamps", Aliases: []string{"t"}, Usage: "begin each line with its time"},
			&cli.StringFlag{Name: "stream", Aliases: []string{"s"}, Usage: "only `STREAM`: stdout, stderr"},
			&cli.StringFlag{Name: "grep", Usage: "only lines that match `REGEX`"},
			&cli.StringSliceFlag{Name: "label", Usage: "all containers with the label `KEY=VALUE`, or KEY for any value"},
			selectorFlag(),
			attemptFlag(),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FORMAT`: text, json"},
		},
		Action: action(env, logsOptionsOf, runLogs),
	}
}

type logsOptions struct {
	targets                      []string
	labels                       map[string]string
	selector                     client.Selector
	attempt                      *uint32
	previous, reopen, timestamps bool
	restarts                     bool // wait for the next attempt as long as there is a pod
	limit                        int64
	grep                         *regexp.Regexp
	json                         bool
	read                         logfile.Options
}

func logsOptionsOf(env *Env, c *cli.Context) (o logsOptions, err error) {
	o.targets, o.previous, o.reopen = c.Args().Slice(), c.Bool("previous"), c.Bool("reopen")
	o.timestamps, o.limit = c.Bool("timestamps"), c.Int64("limit-bytes")
	o.read = logfile.Options{Tail: c.Int("tail"), Follow: c.Bool("follow") || c.Bool("follow-restarts")}
	o.restarts = c.Bool("follow-restarts")
	if o.restarts && (o.previous || c.IsSet("attempt")) {
		return o, usagef("--follow-restarts cannot go with --previous or --attempt, which name one attempt")
	}
	if o.labels, o.selector, err = readLabelFilter(c); err != nil {
		return o, err
	}
	if o.attempt, err = readAttempt(c); err != nil {
		return o, err
	}
	if len(o.labels)+len(o.selector) == 0 {
		if err = argCount(c, 1, -1); err != nil {
			return o, err
		}
	}
	streams := map[string]string{"stdout": logfile.Stdout, "stderr": logfile.Stderr}
	if o.read.Stream, _, err = oneOf(c, "stream", streams); err != nil {
		return o, err
	}
	if o.json, _, err = oneOf(c, "output", map[string]bool{"text": false, "json": true}); err != nil {
		return o, err
	}
	pattern, err := readPattern(c, "grep")
	if err != nil {
		return o, err
	}
	o.grep = pattern.Regexp
	if o.read.Since, err = readTime(env, c, "since"); err != nil {
		return o, err
	}
	o.read.Until, err = readTime(env, c, "until")
	return o, err
}

// readTime reads a time, or how long ago it was. A time without zone is local.
func readTime(env *Env, c *cli.Context, name string) (time.Time, error) {
	text := c.String(name)
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
	return time.Time{}, usagef("--%s %s: want a duration such as 5m, a time such as 2026-01-02T15:04:05Z, or seconds since 1970", name, quote(text))
}

func runLogs(ctx context.Context, env *Env, o logsOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	containers, failed := o.containers(ctx, conn)
	if len(containers) == 0 && failed == nil { // an empty log would look the same
		env.warn("no container matches the selector")
	}
	containers = namePods(ctx, conn, containers)
	writer := newLogWriter(env, o, len(containers) > 1)
	writer.namespaces = needNamespaces(containers)
	if !o.read.Follow && len(containers) > 1 {
		return join(failed, readMerged(ctx, conn, o, containers, writer))
	}
	read := readLog
	if o.read.Follow && (o.restarts || !env.compat && !o.previous && o.attempt == nil) {
		read = func(ctx context.Context, conn *client.Conn, o logsOptions, c *runtimeapi.Container, emit func(source, logfile.Entry) error) error {
			return followLog(ctx, env.Now, conn, o, c, emit)
		}
	}
	var group errgroup.Group
	errs := make([]error, len(containers))
	for i, c := range containers {
		group.Go(func() error { // its own error: one log that ends badly ends no other
			errs[i] = withoutLimit(read(ctx, conn, o, c, writer.entry))
			return nil
		})
	}
	_ = group.Wait() // its members keep their errors
	err = join(append(errs, failed, writer.finish())...)
	if o.read.Follow && ctx.Err() != nil && failed == nil {
		return errFollowed
	}
	return err
}

func (o logsOptions) containers(ctx context.Context, conn *client.Conn) ([]*runtimeapi.Container, error) {
	var found []*runtimeapi.Container
	if len(o.labels)+len(o.selector) > 0 {
		var err error
		if found, err = (containerFilter{labels: o.labels, selector: o.selector, newest: -1}).list(ctx, conn); err != nil {
			return nil, err
		}
	}
	failed := each(o.targets, func(ref string) error {
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

// readLog hands the log of one container to emit.
func readLog(ctx context.Context, conn *client.Conn, o logsOptions, c *runtimeapi.Container, emit func(source, logfile.Entry) error) error {
	from := sourceOf(c)
	if o.reopen {
		if _, err := conn.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: c.GetId()}); err != nil {
			return about(from.name(), err)
		}
	}
	fromEntry := func(e logfile.Entry) error { return emit(from, e) }
	path, err := logPath(ctx, conn, c)
	if err == nil {
		o.read.Ended = untilEnd(conn, c.GetId())
		err = logfile.Read(ctx, path, o.read, fromEntry)
		if !errors.Is(err, fs.ErrPermission) {
			return err
		}
		err = withHint(err, "log files belong to root: try it with sudo")
	}
	if c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED {
		return err
	}
	if asked := engineLog(ctx, conn, o.read, c, fromEntry); !errors.Is(asked, errNoEngineLog) {
		return asked
	}
	return err
}
