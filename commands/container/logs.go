package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/logfile"
	"github.com/crishim/crishim/internal/ocierror"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type logsOptions struct {
	targets                      []string
	filter                       cli.Filter // chooses containers instead of targets; In also applies to targets
	attempt                      *uint32
	previous, reopen, timestamps bool
	allContainers                bool // targets are pods
	restarts                     bool // wait for each next attempt until the pod ends
	limit                        int64
	grep                         cli.Pattern
	dirs                         pod.Dirs
	format                       string
	read                         logfile.Options
	now                          func() time.Time
	warn                         func(format string, args ...any) // receives damaged lines; may be nil
	color                        bool
	crictl                       bool // compatible with crictl: each part of a partial line has its own timestamp
}

func NewLogs(in *cli.Invocation) *cli.Verb {
	o := &logsOptions{limit: -1, read: logfile.Options{Tail: -1}, now: in.Now, warn: in.Printer.Warn, dirs: in.PodDirs()}
	return &cli.Verb{
		Usage:     "Show the logs of containers",
		ArgsUsage: "CONTAINER...",
		Args:      cli.IfFlag("all-containers", cli.CompletePods, cli.CompleteContainers()),
		Description: cli.WithExamples("Reads the log files of containers, including rotated and compressed ones. The container's stdout goes to stdout, its stderr to stderr. Lines of several containers begin with pod/container, or with namespace/pod/container if pods have the same name.",
			"crishim logs web", "crishim logs -f --tail 10 web", "crishim logs web -c web", "crishim logs -p web", "crishim logs --all-containers web", "crishim logs --since 5m --stream stderr web", "crishim logs -t -l app=web"),
		Flags: []urfave.Flag{
			cli.BoolFlag(&o.read.Follow, "follow", "Follow the log until the container ends, and continue with its next attempt if it is restarted at once", "f"),
			cli.BoolFlag(&o.restarts, "follow-restarts", "Follow the log across restarts until the pod ends"),
			cli.BoolFlag(&o.previous, "previous", "Show the previous attempt of the container; in a crash loop, the last ended attempt", "p"),
			cli.BoolFlag(&o.allContainers, "all-containers", "Show all containers of the pods given as arguments"),
			cli.BoolFlag(&o.reopen, "reopen", "Tell the runtime to reopen the log file first", "r"),
			cli.Typed(&o.read.Tail, parseTail, "tail", "Show only the last `N` lines, or all").Number(),
			cli.IntFlag(&o.limit, "limit-bytes", "Stop after `N` bytes"),
			cli.Typed(&o.read.Since, func(text string) (time.Time, error) { return parseTime(in.Now(), text) }, "since", "Show logs since `TIME`: a duration such as 5m, a time such as 2026-01-02T15:04:05Z, or seconds since 1970"),
			cli.Typed(&o.read.Until, func(text string) (time.Time, error) { return parseTime(in.Now(), text) }, "until", "Show logs before `TIME`"),
			cli.BoolFlag(&o.timestamps, "timestamps", "Prefix each line with its timestamp", "t"),
			cli.WordFlag(&o.read.Stream, []string{logfile.Stdout, logfile.Stderr}, "stream", "Show only `STREAM`: stdout, stderr", "s"),
			cli.Typed(&o.grep, cli.ParsePattern, "grep", "Show only lines that match `REGEX`"),
			o.filter.LabelFlag(),
			cli.SelectorFlag(&o.filter.Selector, "l"),
			o.filter.In.ContainerFlag(),
			o.filter.In.NamespaceFlag(),
			cli.AttemptFlag(&o.attempt),
			cli.WordFlag(&o.format, []string{"text", "json"}, "output", "Print as `FORMAT`: text, json", "o"),
		},
		Check: o.check,
		RunOn: o.run,
	}
}

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

// parseTime parses a time, or a duration before now. A time without zone is local. 0 is the epoch, as for docker and
// crictl.
func parseTime(now time.Time, text string) (time.Time, error) {
	switch text {
	case "":
		return time.Time{}, nil
	case "0":
		return time.Unix(0, 0), nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
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

func (o *logsOptions) check(in *cli.Invocation, c *urfave.Context) error {
	o.crictl = in.Compat
	o.targets, o.read.Follow, o.color = c.Args().Slice(), o.read.Follow || o.restarts, in.Printer.Color()
	if o.allContainers && o.filter.In.Container != "" {
		return cli.Usagef("--container and --all-containers: choose one")
	}
	if o.restarts && (o.previous || o.attempt != nil) {
		return cli.Usagef("--follow-restarts contradicts --previous and --attempt, which name one attempt")
	}
	if o.filter.Given() {
		if len(o.targets) > 0 {
			return cli.Usagef("--selector and --label take no arguments, got %s", cli.Quote(o.targets[0]))
		}
		o.filter.All = true
		if o.filter.In.Container != "" {
			o.filter.Name = cli.ExactPattern(o.filter.In.Container)
		}
		return o.filter.Check(true)
	}
	return cli.ArgCount(c, 1, -1)
}

func (o *logsOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	containers, failed := o.containers(ctx, printer, conn)
	if len(containers) == 0 && failed == nil { // without the warning this would look like an empty log
		printer.Warn("no container matches the selector")
	}
	containers = cli.NamePods(ctx, conn, containers)
	writer := &logWriter{
		out: printer.Out, err: printer.Err, o: *o, left: o.limit, pending: lines{},
		prefix: len(containers) > 1 || o.allContainers, namespaces: cli.PodNamesRepeat(containers), colors: map[cli.ContainerPath]int{},
	}
	if !o.read.Follow && len(containers) > 1 {
		return cli.Join(failed, readMerged(ctx, conn, *o, containers, writer))
	}
	read := readLog
	if o.read.Follow && (o.restarts || !printer.Compat && !o.previous && o.attempt == nil) {
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
	if err == nil && len(containers) == 1 && (writer.wrote == 0 || printer.OutTerminal) {
		o.noteEnd(ctx, printer, conn, containers[0])
	}
	return err
}

// noteEnd prints why a container failed. The log may not show it if the container was never started or was killed.
func (o *logsOptions) noteEnd(ctx context.Context, printer *cli.Printer, conn *client.Conn, c *runtimeapi.Container) {
	if o.attempt != nil || printer.Compat || o.format == "json" {
		return
	}
	res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
	s := res.GetStatus()
	if err != nil || s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetExitCode() == 0 {
		return
	}
	text := fmt.Sprintf("container %s exited with status %d", cli.ContainerName(c), s.GetExitCode())
	if s.GetReason() != "" {
		text += " (" + s.GetReason() + ")"
	}
	if message := kuberuntime.OneLine(ocierror.Plain(s.GetMessage())); message != "" {
		text += ": " + message
	}
	printer.Note("crishim: %s", text)
	if from := cli.ContainerPathOf(c); from.Pod != "" {
		printer.Note("hint: `crishim describe %s` shows more", shellwords.Quote(from.PodRef()))
	}
}

func (o *logsOptions) containers(ctx context.Context, printer *cli.Printer, conn *client.Conn) (found []*runtimeapi.Container, err error) {
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
		case printer.Compat:
		case code == codes.FailedPrecondition:
			if _, noPod := conn.Pod(ctx, ref, client.NewestAttempt); noPod == nil { // ref is a pod with several containers
				err = cli.WithHint(err, "--all-containers takes all; %s", cli.HintOf(err))
			}
		case code == codes.NotFound && conn.Remote() == "":
			if name, why := kuberuntime.WhyNoContainers(o.dirs, ref); why != "" {
				err = cli.WithHint(fmt.Errorf("pod %s has no container yet: %s", name, why), "`crishim describe %s` shows more", shellwords.Quote(ref))
			}
		}
		if err == nil && o.previous {
			c, err = previousAttempt(ctx, conn, ref, c, printer.Compat)
		}
		if err == nil {
			found = append(found, c)
		}
		return err
	})
	return found, failed
}

// ofPod returns the newest attempt of each container of a pod, the oldest first. With --previous it returns the previous
// attempts, if any.
func (o *logsOptions) ofPod(ctx context.Context, conn *client.Conn, ref string) (found []*runtimeapi.Container, err error) {
	pod, err := conn.PodOf(ctx, o.filter.In.Query(ref, client.PreferRunning))
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

// previousAttempt returns the newest ended attempt before c. If c has failed and its pod is ready, c may be restarted next:
// previousAttempt then returns c itself, as kubectl does. With exact it returns the attempt with the number before c's, as
// crictl does.
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

// attemptsOf lists the attempts of a container in all sandboxes of its pod, the oldest first, and whether a sandbox is
// ready.
func attemptsOf(ctx context.Context, conn *client.Conn, c *runtimeapi.Container) (attempts []*runtimeapi.Container, ready bool, err error) {
	pods, err := conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, false, err
	}
	list, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, false, err
	}
	uid := c.GetLabels()[kube.LabelPodUID]
	for _, p := range pods.GetItems() {
		if p.GetId() == c.GetPodSandboxId() && uid == "" {
			uid = p.GetMetadata().GetUid()
		}
	}
	sandboxes := map[string]bool{c.GetPodSandboxId(): true}
	for _, p := range pods.GetItems() {
		if p.GetId() == c.GetPodSandboxId() || uid != "" && p.GetMetadata().GetUid() == uid {
			sandboxes[p.GetId()] = true
			ready = ready || p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		}
	}
	attempts = slices.DeleteFunc(list.GetContainers(), func(other *runtimeapi.Container) bool {
		return other.GetMetadata().GetName() != c.GetMetadata().GetName() || !sandboxes[other.GetPodSandboxId()]
	})
	slices.SortFunc(attempts, byAge)
	return attempts, ready, nil
}

func byAge(a, b *runtimeapi.Container) int {
	return cmp.Or(cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()), cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt()))
}
