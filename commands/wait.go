package commands

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
)

// newWait holds a script up until containers or pods are as it needs them.
func newWait(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "wait",
		Usage:     "wait until containers or pods are in a state",
		ArgsUsage: "TARGET...",
		Description: describe("Waits for all that are named. The states are running, exited, removed; for pods ready, notready, removed;\n"+
			"image=REF waits for an image instead, log=REGEX for a line in a container's log. What does not exist yet is waited for, unless its end is;\n"+
			"stderr says so.\n"+
			"With exited it prints the exit status of each.",
			"crishim wait web", "crishim wait --for running --timeout 30s web", "crishim wait --for ready mypod",
			"crishim wait --exit-code job", "crishim wait --for log=hello web"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "for", Value: "exited", Usage: "`STATE` to wait for: running, exited, removed, ready, notready, log=REGEX, image=REF"},
			durationFlag("timeout", "", "give up after this long: 30, 30s, 5m (default: never)"),
			&cli.BoolFlag{Name: "exit-code", Usage: "end with the container's exit status"},
		},
		Action: action(env, waitOptionsOf, runWait),
	}
}

type waitOptions struct {
	targets  []string
	goal     goal
	timeout  time.Duration
	exitCode bool
	pace     pace
	bell     *doorbell
}

func waitOptionsOf(_ *Env, c *cli.Context) (o waitOptions, err error) {
	o.targets, o.exitCode, o.pace = c.Args().Slice(), c.Bool("exit-code"), waitPace
	if o.timeout = durationOf(c, "timeout"); o.timeout < 0 {
		return o, usagef("--timeout %s: want a duration that is not negative", o.timeout)
	}
	if o.goal, err = parseGoal(c.String("for")); err != nil {
		return o, err
	}
	if o.goal.image != "" {
		return o, noArgs(c)
	}
	if o.exitCode && o.goal.state != "exited" {
		return o, usagef("--exit-code goes with --for exited")
	}
	if o.exitCode {
		return o, argCount(c, 1, 1)
	}
	return o, argCount(c, 1, -1)
}

func runWait(ctx context.Context, env *Env, o waitOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	o.bell = &doorbell{}
	o.bell.deaf.Store(true) // images have no events
	if o.goal.image == "" {
		listening, hangUp := context.WithCancel(ctx)
		o.bell = listen(listening, conn)
		defer func() { hangUp(); <-o.bell.ended }()
	}
	var enough <-chan struct{}
	if o.timeout > 0 {
		limit, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		enough = limit.Done()
	}
	if o.goal.image != "" {
		return o.until(ctx, enough, o.goal.image, func() (bool, string, error) { return imageThere(ctx, conn, o.goal.image) })
	}
	return each(o.targets, func(ref string) error { return o.one(ctx, enough, env, conn, ref) })
}

// one waits for one target. It is resolved each time while it does not exist,
// and after that it is the same container, however its name goes on.
func (o waitOptions) one(ctx context.Context, enough <-chan struct{}, env *Env, conn *client.Conn, ref string) error {
	w := &watched{ref: ref, goal: o.goal}
	w.absent = func(err error) { // else a misspelt name would be waited for in silence
		fmt.Fprintf(env.Err, "crishim: %s yet: waiting for it\n", sentence(env, err))
		writeHint(env.Err, err)
	}
	err := o.until(ctx, enough, ref, func() (bool, string, error) { return w.look(ctx, conn) })
	if err == nil && o.goal.log != nil {
		return o.untilLogged(ctx, enough, conn, w)
	}
	if err != nil || o.goal.state != "exited" {
		return err
	}
	if o.exitCode && w.code != 0 {
		return &stream.ExitError{Code: int(w.code)}
	}
	if o.exitCode {
		return nil
	}
	return env.say("%d", w.code)
}

// until asks whenever something has happened, and now and then, at least once. The time limit is not part of the
// context: it would make an error of a question that is under way.
func (o waitOptions) until(ctx context.Context, enough <-chan struct{}, what string, ask func() (done bool, now string, err error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for first := true; ; first = false {
		done, now, err := ask()
		if err != nil || done {
			return err
		}
		timer.Reset(o.bell.patience(o.pace, first))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-enough:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if o.goal.image != "" {
				return fmt.Errorf("image %s is not there after %s", what, o.timeout)
			}
			return fmt.Errorf("%s is %s, not %s, after %s", what, now, o.goal.wanted(), o.timeout)
		case <-o.bell.rings:
		case <-timer.C:
		}
	}
}
