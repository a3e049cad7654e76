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
	"github.com/crishim/crishim/logfile"
)

type waitOptions struct {
	targets  []string
	goal     goal
	timeout  time.Duration
	exitCode bool

	// How often wait asks by itself: where the runtime has no events, and where it has, for
	// some are lost on some runtimes. A status costs the runtime less than a millisecond.
	polling, listening time.Duration
	events             *eventWatch
}

// NewWait holds a script up until containers or pods are as it needs them.
func NewWait(env *cli.Env) *urfave.Command {
	o := &waitOptions{goal: goal{state: "exited"}, polling: 200 * time.Millisecond, listening: time.Second}
	goals := cli.Typed(&o.goal, parseGoal, "for", "`STATE` to wait for: running, exited, removed, ready, notready, log=REGEX, image=REF")
	goals.DefaultText, goals.Words = "exited", []string{"running", "exited", "removed", "ready", "notready", "log=", "image="}
	return &urfave.Command{
		Name:      "wait",
		Usage:     "wait until containers or pods are in a state",
		ArgsUsage: "TARGET...",
		Description: cli.WithExamples("Waits for all that are named. The states are running, exited, removed; for pods ready, notready, removed;\n"+
			"image=REF waits for an image instead, log=REGEX for a line in a container's log. What does not exist yet is waited for, unless its end is;\n"+
			"stderr tells.\n"+
			"With exited it prints the exit status of each.",
			"crishim wait web", "crishim wait --for running --timeout 30s web", "crishim wait --for ready mypod",
			"crishim wait --exit-code job", "crishim wait --for log=hello web"),
		Flags: []urfave.Flag{
			goals,
			cli.DurationFlag(&o.timeout, "timeout", "give up after this long: 30, 30s, 5m (default: never)"),
			cli.BoolFlag(&o.exitCode, "exit-code", "end with the container's exit status"),
		},
		Action: env.Connected(o.check, o.run),
	}
}

func (o *waitOptions) check(_ *cli.Env, c *urfave.Context) error {
	o.targets = c.Args().Slice()
	switch {
	case o.goal.image != "":
		return cli.ArgCount(c, 0, 0)
	case o.exitCode && o.goal.state != "exited":
		return cli.Usagef("--exit-code goes with --for exited")
	case o.exitCode:
		return cli.ArgCount(c, 1, 1)
	}
	return cli.ArgCount(c, 1, -1)
}

// goal is what wait waits for.
type goal struct {
	state string         // running, exited, removed, ready, notready
	image string         // instead of a state
	log   *regexp.Regexp // a line of the log, instead of a state
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
	if state := strings.ToLower(text); slices.Contains(states, state) {
		return goal{state: state}, nil
	}
	return goal{}, cli.MustBe(append(states, "log=REGEX", "image=REF")...)
}

func (g goal) wanted() string {
	switch {
	case g.image != "":
		return "there"
	case g.log != nil:
		return "started"
	}
	return g.state
}

func (o *waitOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	o.events = &eventWatch{}
	o.events.ended.Store(true) // images have no events
	if o.goal.image == "" {
		listening, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		o.events = &eventWatch{happened: make(chan struct{}, 1)}
		go func() { defer close(done); o.events.listen(listening, conn) }()
		defer func() { stop(); <-done }()
	}
	var timeUp <-chan struct{}
	if o.timeout > 0 {
		limit, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		timeUp = limit.Done()
	}
	if o.goal.image != "" {
		return o.until(ctx, timeUp, o.goal.image, func() (bool, string, error) {
			res, err := conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: o.goal.image}})
			return res.GetImage() != nil, "not there", err
		})
	}
	return cli.Each(o.targets, func(ref string) error { return o.one(ctx, timeUp, env, conn, ref) })
}

// one waits for one target. It is resolved each time while it does not exist,
// and after that it is the same container, however its name goes on.
func (o *waitOptions) one(ctx context.Context, timeUp <-chan struct{}, env *cli.Env, conn *client.Conn, ref string) error {
	w := &watched{ref: ref, goal: o.goal}
	w.absent = func(err error) { // else a misspelt name would be waited for in silence
		fmt.Fprintf(env.Err, "crishim: %s yet: waiting for it\n", cli.Sentence(env, err))
		cli.WriteHint(env.Err, err)
	}
	err := o.until(ctx, timeUp, ref, func() (bool, string, error) { return w.look(ctx, conn) })
	switch {
	case err == nil && o.goal.log != nil:
		return o.untilLogged(ctx, timeUp, conn, w)
	case err != nil || o.goal.state != "exited":
		return err
	case o.exitCode && w.code != 0:
		return &stream.ExitError{Code: int(w.code)}
	case o.exitCode:
		return nil
	}
	return env.Say("%d", w.code)
}

// until asks whenever something has happened, and now and then, at least once. The time limit is not part of the
// context: it would make an error of a question that is under way.
func (o *waitOptions) until(ctx context.Context, timeUp <-chan struct{}, what string, ask func() (done bool, now string, err error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for first := true; ; first = false {
		done, now, err := ask()
		if err != nil || done {
			return err
		}
		// What the runtime answers to the wish for events, it answers soon: at first that
		// is waited for.
		timer.Reset(o.listening)
		if first || o.events.ended.Load() {
			timer.Reset(o.polling)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timeUp:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if o.goal.image != "" {
				return fmt.Errorf("image %s is not there after %s", what, o.timeout)
			}
			return fmt.Errorf("%s is %s, not %s, after %s", what, now, o.goal.wanted(), o.timeout)
		case <-o.events.happened:
		case <-timer.C:
		}
	}
}

// eventWatch notifies of what the runtime tells.
type eventWatch struct {
	happened chan struct{}
	ended    atomic.Bool // the runtime has no events, or none any more
}

func (w *eventWatch) listen(ctx context.Context, conn *client.Conn) {
	defer w.ended.Store(true)
	events, err := conn.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	for err == nil {
		if _, err = events.Recv(); err == nil {
			select {
			case w.happened <- struct{}{}:
			default: // one that nobody has seen yet stands for all
			}
		}
	}
}

// watched is a container or a pod on its way to a goal.
type watched struct {
	ref  string
	goal goal
	id   string // once it is known
	pod  bool
	code int32

	absent func(error) // told once when it does not exist yet
}

// look reports whether the goal is reached, and how things are.
func (w *watched) look(ctx context.Context, conn *client.Conn) (bool, string, error) {
	now, err := w.state(ctx, conn)
	switch {
	case cli.IsGone(err) && w.goal.state == "removed":
		return true, "removed", nil
	case cli.IsGone(err) && w.goal.state != "exited" && w.goal.state != "notready":
		if w.absent != nil {
			w.absent(err)
			w.absent = nil
		}
		return false, "not there", nil
	case err != nil:
		return false, "", err
	case w.goal.log != nil:
		return now == "running" || now == "exited", now, nil
	case w.goal.state == "running" && now == "exited", w.goal.state == "ready" && now == "notready":
		w.id = "" // its next attempt, or a new sandbox, may be under way
	}
	return now == w.goal.state, now, nil
}

func (w *watched) state(ctx context.Context, conn *client.Conn) (string, error) {
	if w.id == "" {
		if err := w.find(ctx, conn); err != nil {
			return "", err
		}
	}
	if w.pod {
		res, err := conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: w.id})
		return cli.PodState(res.GetStatus().GetState()), err
	}
	res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: w.id})
	w.code = res.GetStatus().GetExitCode()
	return cli.ContainerState(res.GetStatus().GetState()), err
}

func (w *watched) find(ctx context.Context, conn *client.Conn) error {
	if w.goal.state != "ready" && w.goal.state != "notready" { // which are states of pods only
		c, err := conn.Container(ctx, w.ref, client.PreferRunning)
		w.id = c.GetId()
		if !cli.IsGone(err) || w.goal.state != "removed" || strings.Count(w.ref, "/") > 1 {
			return err
		}
	}
	pod, err := conn.Pod(ctx, w.ref, client.PreferRunning)
	w.id, w.pod = pod.GetId(), true
	return err
}

// errTimeUp ends the reading of a log whose line did not come in time, errLineFound of one
// in which it is found.
var (
	errTimeUp    = errors.New("the time is up")
	errLineFound = errors.New("the line is found")
)

// untilLogged reads the log of a container that has started until a line is the
// one that is waited for. Lines that are there already count.
func (o *waitOptions) untilLogged(ctx context.Context, timeUp <-chan struct{}, conn *client.Conn, w *watched) error {
	c, err := conn.Container(ctx, w.id, client.PreferRunning)
	if err != nil {
		return err
	}
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-timeUp:
			stop(errTimeUp)
		case <-reading.Done():
		}
	}()
	m := lineMatcher{expr: o.goal.log, pending: lines{}}
	how := logsOptions{read: logfile.Options{Follow: true, Tail: -1}}
	err = readLog(reading, conn, how, c, m.entry)
	switch {
	case errors.Is(err, errLineFound), err == nil && m.atEnd():
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(context.Cause(reading), errTimeUp):
		return fmt.Errorf("%s has logged no line that matches %s after %s", w.ref, cli.Quote(o.goal.log.String()), o.timeout)
	case err != nil:
		return err
	}
	return fmt.Errorf("%s has ended and has logged no line that matches %s", w.ref, cli.Quote(o.goal.log.String()))
}

// lineMatcher looks for a line that came in one or in several entries.
type lineMatcher struct {
	expr    *regexp.Regexp
	pending lines
}

func (m *lineMatcher) entry(from cli.Source, e logfile.Entry) error {
	line, whole := m.pending.add(lineKey{from, e.Stream}, e)
	if whole && m.expr.Match(bytes.TrimSuffix(line, []byte("\n"))) {
		return errLineFound
	}
	return nil
}

// atEnd looks at what never became a line.
func (m *lineMatcher) atEnd() bool {
	for _, line := range m.pending {
		if m.expr.Match(line) {
			return true
		}
	}
	return false
}
