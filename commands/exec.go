package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
)

// newExec runs a command in running containers. Its status is the command's.
func newExec(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "exec",
		Usage:     "run a command in running containers",
		ArgsUsage: "[CONTAINER] [COMMAND [ARG...]]",
		Description: describe("The container by name, pod/container, pod or id, or all that the filters choose, one after the other.\n"+
			"Without a command it opens a shell, if there is a terminal or --stdin. The exit status is the command's; 125 is crishim's own failure,\n"+
			"126 a command that cannot be run, 127 one that is not there.",
			"crishim exec web ls -l /", "crishim exec -it web sh", "crishim exec --sync web cat /etc/hostname",
			"crishim exec --name '^web' --parallel uptime"),
		Flags:  execFlags(),
		Action: action(env, execOptionsOf, runExec),
	}
}

func execFlags() []cli.Flag {
	flags := []cli.Flag{
		&cli.BoolFlag{Name: "sync", Aliases: []string{"s"}, Usage: "through the runtime's ExecSync, without streaming"},
		durationFlag("timeout", "", "end the command after this long: 5, 5s, 1m"),
		&cli.StringSliceFlag{Name: "env", Usage: "with `NAME=VALUE` in the environment, several times; only on crishim's own shim"},
		&cli.StringFlag{Name: "workdir", Usage: "in `DIRECTORY`; only on crishim's own shim"},
		&cli.StringFlag{Name: "user", Usage: "as `USER[:GROUP]`; only on crishim's own shim"},
		&cli.BoolFlag{Name: "parallel", Aliases: []string{"x"}, Usage: "in all chosen containers at once, each line with its container"},
		&cli.BoolFlag{Name: "ignore-errors", Aliases: []string{"e"}, Usage: "go on with the other containers when one fails"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "do not say which container the output is from"},
	}
	for _, flag := range containerFilterFlags() {
		switch f := flag.(type) {
		case *cli.StringFlag:
			if f.Name == "state" {
				f.Aliases = nil // -s is --sync
			}
		case *cli.BoolFlag:
			if f.Name == "all" {
				continue // nothing runs in a container that does not
			}
		}
		flags = append(flags, flag)
	}
	return append(flags, sessionFlags()...)
}

type execOptions struct {
	target   string // empty: the filter chooses
	command  []string
	filter   containerFilter
	session  session
	timeout  time.Duration
	sync     bool
	parallel bool
	ignore   bool
	quiet    bool
	shell    bool // no command was given
	process  client.Process
}

func execOptionsOf(env *Env, c *cli.Context) (o execOptions, err error) {
	o.sync, o.parallel = c.Bool("sync"), c.Bool("parallel")
	o.ignore, o.quiet = c.Bool("ignore-errors"), c.Bool("quiet")
	if o.filter, err = readContainerFilter(c); err != nil {
		return o, err
	}
	if !c.IsSet("state") {
		running := runtimeapi.ContainerState_CONTAINER_RUNNING
		o.filter.state = &running
	}
	if o.timeout = durationOf(c, "timeout"); o.timeout < 0 {
		return o, usagef("--timeout %s: want a duration that is not negative", o.timeout)
	}
	if o.session, err = readSession(env, c); err != nil {
		return o, err
	}
	if o.process, err = readProcess(c); err != nil {
		return o, err
	}
	o.command = c.Args().Slice()
	if !chosenByFilter(c) {
		if err = argCount(c, 1, -1); err != nil {
			return o, err
		}
		o.target, o.command = o.command[0], o.command[1:]
	}
	if len(o.command) > 0 && o.command[0] == "--" {
		o.command = o.command[1:]
	}
	return o.complete(env, "exec")
}

// chosenByFilter says that flags name the containers, not an argument.
func chosenByFilter(c *cli.Context) bool {
	for _, name := range []string{"name", "namespace", "pod", "image", "state", "label", "selector", "latest", "last"} {
		if c.IsSet(name) {
			return true
		}
	}
	return false
}

// complete refuses what contradicts itself and chooses a shell where no
// command is given.
func (o execOptions) complete(env *Env, verb string) (execOptions, error) {
	switch {
	case o.sync && (o.session.stdin || o.session.tty):
		return o, usagef("--sync carries no input and no terminal: leave out --stdin and --tty")
	case o.parallel && (o.session.stdin || o.session.tty):
		return o, usagef("--parallel carries no input and no terminal: leave out --stdin and --tty")
	case len(o.command) > 0:
	case o.target == "" || o.sync:
		return o, usagef("%s needs a command", verb)
	case !env.InTerminal && !o.session.stdin: // it would end at once, and look like a success
		return o, &usageError{text: verb + " needs a command", noArguments: true, hint: "in a terminal, or with --stdin, it opens a shell"}
	default:
		o.shell, o.command = true, shellCommand()
		o.session.stdin = true
		o.session.tty = o.session.tty || env.InTerminal && env.OutTerminal
	}
	return o, nil
}

func (o execOptions) request(id string) *runtimeapi.ExecRequest {
	return &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: o.command, Tty: o.session.tty,
		Stdin: o.session.stdin, Stdout: true, Stderr: !o.session.tty,
	}
}

func (o execOptions) syncRequest(id string) *runtimeapi.ExecSyncRequest {
	seconds := (o.timeout + time.Second - 1) / time.Second
	return &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: o.command, Timeout: int64(seconds)}
}

func runExec(ctx context.Context, env *Env, o execOptions) error {
	o.session.fit(env)
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if client.IsFullID(o.target) && !o.shell {
		return o.inID(ctx, conn, o.session.streams(env))
	}
	if o.target != "" {
		c, err := conn.Container(ctx, o.target, client.Running)
		if err != nil {
			return err
		}
		return o.inOne(ctx, conn, c, o.session.streams(env))
	}
	containers, err := o.filter.list(ctx, conn)
	if err != nil {
		return err
	}
	switch {
	case len(containers) == 0:
		return errors.New("no running container matches the filters")
	case len(containers) > 1 && (o.session.stdin || o.session.tty):
		return fmt.Errorf("%d containers match, and --stdin and --tty go to one", len(containers))
	}
	return o.inMany(ctx, env, conn, containers)
}

// syncGrace is what a runtime may take longer than the timeout that it was
// given, to end the command and say so. containerd does not say so before the last
// child that holds the output has ended.
const syncGrace = 2 * time.Second

func (o execOptions) tooLong() error {
	return fmt.Errorf("the command did not end within %s", o.timeout)
}

// inID runs the command in the container with the id that was given, without
// looking it up. What stands in the way is looked up when the runtime refuses.
func (o execOptions) inID(ctx context.Context, conn *client.Conn, s stream.Streams) error {
	err := o.inOne(ctx, conn, &runtimeapi.Container{Id: o.target}, s)
	switch status.Code(err) {
	case codes.OK, codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return err
	}
	if _, ok := status.FromError(err); !ok {
		return err // not the runtime's: the command's own status, for one
	}
	c, nerr := conn.Container(ctx, o.target, client.Running)
	if nerr != nil {
		return nerr
	}
	if c.GetId() != o.target { // a name like an id
		return o.inOne(ctx, conn, c, s)
	}
	return err
}

// inOne runs the command in one container.
func (o execOptions) inOne(ctx context.Context, conn *client.Conn, c *runtimeapi.Container, s stream.Streams) error {
	if o.timeout > 0 {
		limit := o.timeout
		if o.sync {
			limit += syncGrace
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, o.tooLong())
		defer cancel()
	}
	left := false
	err := o.once(ctx, conn, c, s, &left)
	if o.shell && errors.Is(err, errNoShell) {
		err = &statusError{code: exitNotFound, cause: withHint(fmt.Errorf("there is no shell in %s", containerName(c)),
			"crishim debug %s brings one along", containerName(c))}
	}
	switch {
	case left && errors.Is(err, stream.ErrDetached):
		return detached(stream.ErrDetached, s, leftRunning)
	case errors.Is(err, stream.ErrDetached):
		return detached(err, s, "the command goes on")
	case left:
		o.session.options.Warn("%s", leftRunning)
	}
	return err
}

// leftRunning is the warning for runtimes that do not end a command whose client
// goes. CRI has no call to end it, and its process is not guessed from here.
const leftRunning = "the command may still run: this runtime does not end it when its client goes"

// privateTimeout is how long a command that has ended asks whether the runtime is
// crishim's own shim.
const privateTimeout = 5 * time.Second

// abandoned reports whether a session has ended before its command did.
func abandoned(ctx context.Context, err error) bool {
	var signal *stream.SignalError
	var status *stream.ExitError
	if err == nil || errors.As(err, &status) {
		return false
	}
	return ctx.Err() != nil || errors.As(err, &signal) || errors.Is(err, stream.ErrDetached)
}

// once runs the command, or opens a shell. left is set when the command may go
// on after an error.
func (o execOptions) once(ctx context.Context, conn *client.Conn, c *runtimeapi.Container, s stream.Streams, left *bool) error {
	if o.sync {
		return o.runSync(ctx, conn, c, s)
	}
	run := func(o execOptions) error {
		s, url := s, ""
		start := newStartError(&s)
		o.session.options.OnDetach = func(ctx context.Context) error { return conn.DetachExec(ctx, url) }
		err := cannotRun(o.session.dial(ctx, s, func(ctx context.Context) (_ string, err error) {
			url, err = conn.Exec(ctx, o.request(c.GetId()), o.process)
			return url, err
		}, stream.Exec))
		err = start.orElse(err)
		if abandoned(ctx, err) && !conn.Embedded {
			ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), privateTimeout)
			defer cancel()
			*left = !conn.HasPrivate(ask)
		}
		return err
	}
	if o.shell {
		return o.openShell(o.hasShell(ctx, conn, c.GetId()), run)
	}
	return run(o)
}

// runSync shows all that the command wrote, however it ended.
func (o execOptions) runSync(ctx context.Context, conn *client.Conn, c *runtimeapi.Container, s stream.Streams) error {
	res, err := conn.ExecSync(ctx, o.syncRequest(c.GetId()), o.process)
	if status.Code(err) == codes.DeadlineExceeded && o.timeout > 0 {
		return o.tooLong()
	}
	if status.Code(err) == codes.ResourceExhausted { // what other runtimes do with too much of it
		return withHint(err, "the output is too much for --sync; without it all arrives")
	}
	if err != nil {
		return cannotRun(err)
	}
	if res.GetExitCode() < 0 && o.timeout > 0 { // CRI-O: no process ends with such a status
		return o.tooLong()
	}
	_, outErr := s.Out.Write(res.GetStdout())
	_, errErr := s.Err.Write(res.GetStderr())
	for _, name := range res.Cut {
		o.session.options.Warn("%s is incomplete: --sync carries 16 MiB at most; without it all arrives", name)
	}
	if code := res.GetExitCode(); code != 0 {
		return &stream.ExitError{Code: int(code)}
	}
	return errors.Join(outErr, errErr)
}
