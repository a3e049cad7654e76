package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/logfile"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type waitOptions struct {
	targets  []string
	in       cli.Scope
	goal     goal
	timeout  time.Duration
	exitCode bool
	dirs     pod.Dirs

	// polling is the interval between status calls without events. listening is the interval with events, needed because
	// some runtimes lose events. A status call costs the runtime less than a millisecond.
	polling, listening time.Duration
	events             *eventWatch
	readiness          *readiness
}

func NewWait(in *cli.Invocation) *cli.Verb {
	o := &waitOptions{goal: goal{state: "exited"}, polling: 200 * time.Millisecond, listening: time.Second, dirs: in.PodDirs()}
	goals := cli.Typed(&o.goal, parseGoal, "for", "Wait for `STATE`: running, exited, removed, ready, notready, log=REGEX, image=REF")
	goals.DefaultText, goals.Words = "exited", []string{"running", "exited", "removed", "ready", "notready", "log=", "image="}
	return &cli.Verb{
		Usage:     "Wait until containers or pods are in a state",
		ArgsUsage: "POD|CONTAINER...",
		Args:      cli.AnyOf(cli.CompletePods, cli.CompleteContainers()),
		Description: cli.WithExamples("Waits until all targets are in the state: running, exited or removed for containers, ready, notready or removed for pods.\n"+
			"image=REF waits for an image instead, log=REGEX for a line in a container's log. The probes of sync or apply decide whether a pod is ready;\n"+
			"if neither runs, wait itself runs the probes. A pod without probes is ready when all its containers run. If a target does not exist yet, wait\n"+
			"prints a message to stderr and waits for it, except with exited and notready. With exited, wait prints the exit status of each container.\n"+
			"As in kubectl, condition=Ready means ready, condition=Ready=false notready, and delete removed.",
			"crishim wait web", "crishim wait --for running --timeout 30s web", "crishim wait --for ready mypod", "crishim wait --for=condition=Ready pod/mypod --timeout=60s",
			"crishim wait --exit-code job", "crishim wait --for log=hello web"),
		Flags: []urfave.Flag{
			goals,
			cli.DurationFlag(&o.timeout, "timeout", "Give up after `DURATION`: 30, 30s, 5m"),
			cli.BoolFlag(&o.exitCode, "exit-code", "Exit with the container's exit status"),
			o.in.NamespaceFlag(),
		},
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *waitOptions) check(_ *cli.Invocation, c *urfave.Context) error {
	o.targets = c.Args().Slice()
	switch {
	case o.goal.image != "":
		return cli.ArgCount(c, 0, 0)
	case o.exitCode && o.goal.state != "exited":
		return cli.Usagef("--exit-code needs --for exited")
	case o.exitCode:
		return cli.ArgCount(c, 1, 1)
	}
	return cli.ArgCount(c, 1, -1)
}

// goal is a state, an image or a line of a log.
type goal struct {
	state string         // running, exited, removed, ready, notready
	image string         // image that must exist
	log   *regexp.Regexp // matches a line of the log
}

func parseGoal(text string) (goal, error) {
	if image, ok := strings.CutPrefix(text, "image="); ok && image != "" {
		return goal{image: image}, nil
	}
	if expr, ok := strings.CutPrefix(text, "log="); ok && expr != "" {
		line, err := regexp.Compile(expr)
		return goal{log: line}, err
	}
	states := []string{"running", "exited", "removed", "ready", "notready"}
	state := strings.ToLower(text)
	if other, ok := statesOfKubectl[state]; ok {
		state = other
	}
	if slices.Contains(states, state) {
		return goal{state: state}, nil
	}
	return goal{}, cli.MustBe(append(states, "log=REGEX", "image=REF")...)
}

// statesOfKubectl maps the conditions of kubectl wait --for.
var statesOfKubectl = map[string]string{
	"condition=ready": "ready", "condition=ready=true": "ready", "condition=ready=false": "notready",
	"condition=containersready": "ready", "condition=containersready=true": "ready", "condition=containersready=false": "notready",
	"delete": "removed",
}

func (g goal) String() string {
	switch {
	case g.image != "":
		return "there"
	case g.log != nil:
		return "started"
	}
	return g.state
}

func (o *waitOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	o.events = &eventWatch{happened: make(chan struct{}, 1)}
	o.readiness = &readiness{printer: printer, dirs: o.dirs, conn: conn}
	defer o.readiness.close()
	if o.goal.state == "ready" || o.goal.state == "notready" {
		o.listening = min(o.listening, o.polling) // results of probes cause no event
	}
	limit := ctx
	if o.timeout > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	if o.goal.image != "" {
		o.events.ended.Store(true) // images have no events
		return o.until(ctx, limit, o.goal.image, func() (bool, string, error) {
			res, err := conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: o.goal.image}})
			return res.GetImage() != nil, "not there", err
		})
	}
	listening, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); o.events.listen(listening, conn) }()
	defer func() { stop(); <-done }()
	if len(o.targets) > 1 && slices.Contains(cli.PodTypes, o.targets[0]) {
		// kubectl accepts the type as an argument before the names: wait pod web. A container or pod with the name of
		// the type takes precedence.
		_, err := conn.FindContainer(ctx, o.in.Query(o.targets[0], client.NewestAttempt))
		if cli.IsGone(err) {
			_, err = conn.FindPod(ctx, o.in.Query(o.targets[0], client.NewestAttempt))
		}
		if cli.IsGone(err) {
			o.targets = o.targets[1:]
			for i, name := range o.targets {
				o.targets[i] = "pod/" + name
			}
		}
	}
	return cli.Each(o.targets, func(ref string) error { return o.one(ctx, limit, printer, conn, ref) })
}

// one waits for one target. With --for exited it prints the exit status, or returns it with --exit-code. It resolves the
// reference at each poll until the target exists, and then watches that object. While --for running finds an exited
// container, or --for ready a pod that is not ready, it resolves the reference again: there may be a next attempt or a
// new sandbox.
func (o *waitOptions) one(ctx, limit context.Context, printer *cli.Printer, conn *client.Conn, ref string) error {
	w := &watched{ref: ref, in: o.in, goal: o.goal, readiness: o.readiness}
	err := o.until(ctx, limit, ref, func() (bool, string, error) { return w.look(ctx, printer, conn) })
	switch {
	case err == nil && o.goal.log != nil:
		return o.untilLogged(ctx, limit, conn, w)
	case err != nil || o.goal.state != "exited":
		return err
	case o.exitCode && w.code != 0:
		return &stream.ExitError{Code: int(w.code)}
	case o.exitCode:
		return nil
	}
	return printer.Say("%d", w.code)
}

// until calls ask after each event and at intervals, until ask reports done or limit ends. Requests use ctx, because the
// end of limit would fail a request in flight.
func (o *waitOptions) until(ctx, limit context.Context, what string, ask func() (done bool, now string, err error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for first := true; ; first = false {
		done, now, err := ask()
		if err != nil || done {
			return err
		}
		// The first interval is short, because the runtime may still refuse to send events.
		timer.Reset(o.listening)
		if first || o.events.ended.Load() {
			timer.Reset(o.polling)
		}
		select {
		case <-limit.Done():
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case o.goal.image != "":
				return fmt.Errorf("image %s is not there after %s", what, o.timeout)
			}
			if why, not := strings.CutPrefix(now, "notready"); not && o.goal.state == "ready" {
				err := fmt.Errorf("%s is not ready after %s%s", what, o.timeout, why)
				return cli.WithHint(err, "`crishim describe %s` shows why", shellwords.Quote(o.in.InNamespace(what)))
			}
			return fmt.Errorf("%s is %s, not %s, after %s", what, now, o.goal, o.timeout)
		case <-o.events.happened:
		case <-timer.C:
		}
	}
}

// eventWatch sends on happened after each event of the runtime.
type eventWatch struct {
	happened chan struct{}
	ended    atomic.Bool // the runtime has no events, or its stream has ended
}

func (w *eventWatch) listen(ctx context.Context, conn *client.Conn) {
	defer w.ended.Store(true)
	events, err := conn.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	for err == nil {
		if _, err = events.Recv(); err == nil {
			select {
			case w.happened <- struct{}{}:
			default: // a notification is already pending
			}
		}
	}
}

type watched struct {
	ref   string
	in    cli.Scope
	goal  goal
	id    string // "" until it exists
	pod   bool
	code  int32
	noted bool   // the user knows that it does not exist yet
	why   string // reason why a pod is not ready

	readiness *readiness
}

// look reports whether the goal is reached, and returns the state.
func (w *watched) look(ctx context.Context, printer *cli.Printer, conn *client.Conn) (bool, string, error) {
	now, err := w.state(ctx, conn)
	switch {
	case cli.IsGone(err) && w.goal.state == "removed":
		return true, "removed", nil
	case cli.IsGone(err) && w.goal.state != "exited" && w.goal.state != "notready":
		if !w.noted { // tell the user once, because the name may be misspelt
			fmt.Fprintf(printer.Err, "crishim: %s yet: waiting for it\n", printer.Sentence(err))
			cli.WriteHint(printer.Err, cli.HintOf(err))
		}
		w.noted = true
		return false, "not there", nil
	case err != nil:
		return false, "", err
	case w.goal.log != nil:
		return now == "running" || now == "exited", now, nil
	case w.goal.state == "running" && now == "exited", w.goal.state == "ready" && now == "notready":
		w.id = "" // there may be a next attempt or a new sandbox
	}
	if reached := now == w.goal.state; reached || w.why == "" {
		return reached, now, nil
	}
	return false, now + " (" + w.why + ")", nil
}

func (w *watched) state(ctx context.Context, conn *client.Conn) (string, error) {
	if w.id == "" {
		if err := w.find(ctx, conn); err != nil {
			return "", err
		}
	}
	if w.pod {
		res, err := conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: w.id})
		if err != nil || w.goal.state == "removed" {
			return cli.PodState(res.GetStatus().GetState()), err
		}
		ready, why, err := w.readiness.ofPod(ctx, res.GetStatus())
		if w.why = why; ready {
			return "ready", err
		}
		return "notready", err
	}
	res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: w.id})
	w.code = res.GetStatus().GetExitCode()
	return cli.ContainerState(res.GetStatus().GetState()), err
}

func (w *watched) find(ctx context.Context, conn *client.Conn) error {
	if w.goal.state != "ready" && w.goal.state != "notready" { // ready and notready are states of pods only
		c, err := conn.FindContainer(ctx, w.in.Query(w.ref, client.PreferRunning))
		w.id = c.GetId()
		if !cli.IsGone(err) || w.goal.state != "removed" || strings.Count(w.ref, "/") > 1 {
			return err
		}
	}
	pod, err := conn.PodOf(ctx, w.in.Query(w.ref, client.PreferRunning))
	w.id, w.pod = pod.GetId(), true
	return err
}

var errLineFound = errors.New("the line is found")

// untilLogged reads the whole log of a started container until a line matches.
func (o *waitOptions) untilLogged(ctx, limit context.Context, conn *client.Conn, w *watched) error {
	c, err := conn.Container(ctx, w.id, client.PreferRunning)
	if err != nil {
		return err
	}
	reading, stop := context.WithCancel(ctx) // a deadline would disable the limits of single requests
	defer stop()
	defer context.AfterFunc(limit, stop)()
	m := lineMatcher{expr: o.goal.log, pending: lines{}}
	err = readLog(reading, conn, logsOptions{read: logfile.Options{Follow: true, Tail: -1}}, c, m.entry)
	switch {
	case errors.Is(err, errLineFound), err == nil && m.atEnd():
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limit.Err() != nil:
		return fmt.Errorf("%s has logged no line that matches %s after %s", w.ref, cli.Quote(o.goal.log.String()), o.timeout)
	case err != nil:
		return err
	}
	return fmt.Errorf("%s has ended and has logged no line that matches %s", w.ref, cli.Quote(o.goal.log.String()))
}

// lineMatcher looks for a line, which may be in several entries.
type lineMatcher struct {
	expr    *regexp.Regexp
	pending lines
}

func (m *lineMatcher) entry(from cli.ContainerPath, e logfile.Entry) error {
	line, whole := m.pending.add(lineKey{from, e.Stream}, e)
	if whole && m.expr.Match(bytes.TrimSuffix(line, []byte("\n"))) {
		return errLineFound
	}
	return nil
}

// atEnd reports whether the incomplete last line of a stream matches, after the log has ended.
func (m *lineMatcher) atEnd() bool {
	for _, e := range m.pending {
		if m.expr.Match(e.Text) {
			return true
		}
	}
	return false
}
