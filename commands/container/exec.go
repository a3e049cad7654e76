package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/output"
)

type execOptions struct {
	target   string // empty: the filter chooses
	in       cli.Scope
	command  []string
	filter   cli.Filter
	session  cli.SessionOptions
	timeout  time.Duration
	sync     bool
	parallel bool
	ignore   bool
	quiet    bool
	shell    bool // no command was given
	process  client.Process
}

func NewExec(in *cli.Invocation) *cli.Verb {
	o := &execOptions{}
	return &cli.Verb{
		Usage:     "Run a command in running containers",
		ArgsUsage: "CONTAINER [COMMAND [ARG...]]",
		Args:      cli.First(cli.CompleteContainers("running"), cli.CompleteFiles),
		Description: cli.WithExamples("Runs a command in a container, given by name, pod/container, pod or ID. With filters in place of CONTAINER, runs it in all containers that\n"+
			"the filters choose, one after the other.\n"+
			"Without a command, exec opens a shell if there is a terminal or --stdin. The exit status is the command's. 125 means that crishim failed,\n"+
			"126 that the command cannot be run, 127 that it was not found.",
			"crishim exec web ls -l /", "crishim exec -it web sh", "crishim exec web -- date", "crishim exec web -c web -- ls /", "crishim exec --sync web cat /etc/hostname",
			"crishim exec --name '^web' --parallel uptime"),
		Flags: slices.Concat([]urfave.Flag{
			cli.BoolFlag(&o.sync, "sync", "Use the runtime's ExecSync instead of a stream", "s"),
			cli.DurationFlag(&o.timeout, "timeout", "Timeout of the command: 5, 5s, 1m"),
			cli.ListFlag(&o.process.Env, parseVariable, "env", "Set the environment variable `NAME=VALUE` (crishim's dockershim only)"),
			cli.Typed(&o.process.WorkingDir, parseDirectory, "workdir", "Run in the working directory `DIR` (crishim's dockershim only)", "w"),
			cli.StringFlag(&o.process.User, "user", "Run as `USER[:GROUP]` (crishim's dockershim only)", "u"),
			o.in.ContainerFlag(),
			cli.BoolFlag(&o.parallel, "parallel", "Run in all chosen containers at once and prefix each line with its container", "x"),
			cli.BoolFlag(&o.ignore, "ignore-errors", "Continue with the other containers when the command fails, and succeed", "e"),
			cli.BoolFlag(&o.quiet, "quiet", "Do not print the names of the containers", "q"),
			// --state without its -s, which is --sync here; no --all: exec needs a running container.
		}, cli.WithoutFlags(cli.WithoutShortNames(o.filter.ContainerFlags(in), "state"), "all"), o.session.Flags()),
		Check: o.check,
		RunOn: o.run,
	}
}

func parseVariable(text string) (string, error) {
	if name, _, ok := strings.Cut(text, "="); !ok || name == "" {
		return "", errors.New("must be NAME=VALUE")
	}
	return text, nil
}

func parseDirectory(text string) (string, error) {
	if text != "" && !strings.HasPrefix(text, "/") {
		return "", errors.New("must be an absolute path")
	}
	return text, nil
}

func (o *execOptions) check(in *cli.Invocation, c *urfave.Context) error {
	given, state := o.filter.Given(), cmp.Or(o.filter.State, "running")
	if err := cmp.Or(o.filter.Check(true), o.session.Check(in)); err != nil {
		return err
	}
	o.filter.State, o.in.Namespace = state, o.filter.In.Namespace
	o.command = c.Args().Slice()
	if given && o.in.Container != "" {
		if o.filter.Name.Regexp != nil {
			return cli.Usagef("--container and --name: choose one")
		}
		o.filter.Name = cli.ExactPattern(o.in.Container)
	}
	if !given {
		if err := cli.ArgCount(c, 1, -1); err != nil {
			return err
		}
		o.target, o.command = o.command[0], o.command[1:]
	}
	return o.complete(in, "exec")
}

// shell is run by sh, which every image with bash or ash has.
const shell = "command -v bash >/dev/null && exec bash; command -v ash >/dev/null && exec ash; exec sh"

// complete refuses flags that contradict each other and chooses a shell if no command is given.
func (o *execOptions) complete(in *cli.Invocation, verb string) error {
	if err := checkUTF8(o.command); err != nil {
		return err
	}
	switch {
	case o.sync && (o.session.Stdin || o.session.TTY):
		return cli.Usagef("--sync carries no input and no terminal: leave out --stdin and --tty")
	case o.parallel && (o.session.Stdin || o.session.TTY):
		return cli.Usagef("--parallel carries no input and no terminal: leave out --stdin and --tty")
	case len(o.command) > 0:
	case o.target == "" || o.sync:
		return cli.Usagef("%s needs a command", verb)
	case !in.InTerminal && !o.session.Stdin: // the shell would end at once with status 0
		return &cli.UsageError{Text: verb + " needs a command", Kind: argv.NoArguments, Next: "in a terminal, or with --stdin, it opens a shell"}
	default:
		o.shell, o.command = true, []string{"sh", "-c", shell}
		o.session.Stdin = true
		o.session.TTY = o.session.TTY || in.InTerminal && in.OutTerminal
	}
	return nil
}

// checkUTF8 refuses arguments that CRI cannot carry: its strings are UTF-8.
func checkUTF8(command []string) error {
	for _, arg := range command {
		if !utf8.ValidString(arg) {
			return cli.Usagef("the argument %s is not UTF-8, and CRI carries nothing else", cli.Quote(arg))
		}
	}
	return nil
}

func (o *execOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	o = new(*o) // a copy, because several nodes run at once and share o
	o.session.Options.Warn = printer.Warn
	o.session.DropTTYWithoutTerminal(printer)
	if o.target != "" {
		err := o.inTarget(ctx, printer, conn)
		if err != nil && o.ignore && ctx.Err() == nil {
			printer.Warn("%s: %w: ignored", o.target, err)
			return nil
		}
		return err
	}
	containers, err := o.filter.Containers(ctx, conn)
	switch {
	case err != nil:
		return err
	case len(containers) == 0:
		return errors.New("no running container matches the filters")
	case len(containers) > 1 && (o.session.Stdin || o.session.TTY):
		return fmt.Errorf("%d containers match, and --stdin and --tty go to one", len(containers))
	}
	return o.inMany(ctx, printer, conn, containers)
}

func (o *execOptions) inTarget(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	if client.IsFullID(o.target) && !o.in.Given() && !printer.DryRun() {
		return o.inID(ctx, conn, o.session.Streams(printer))
	}
	c, err := conn.FindContainer(ctx, o.in.Query(o.target, client.RunningAttempt))
	if err != nil {
		return err
	}
	if printer.DryRun() {
		return o.sayWould(printer, o.target)
	}
	return o.inOne(ctx, conn, c, o.session.Streams(printer))
}

// inID runs the command in the container with a full id, without a lookup. After a failure it looks the container up. The
// lookup returns a better error, or finds a container whose name looks like an id.
func (o *execOptions) inID(ctx context.Context, conn *client.Conn, s stream.Streams) error {
	err := o.inOne(ctx, conn, &runtimeapi.Container{Id: o.target}, s)
	answer, ok := status.FromError(err)
	if !ok { // the error is not from the runtime, for example the command's exit status
		return err
	}
	switch answer.Code() {
	case codes.OK, codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return err
	}
	c, lookupErr := conn.Container(ctx, o.target, client.RunningAttempt)
	switch {
	case lookupErr != nil:
		return lookupErr
	case c.GetId() != o.target, kube.IsPaused(c):
		return o.inOne(ctx, conn, c, s)
	}
	return err
}

const (
	// syncGrace is the time for a runtime to end a command after its timeout and to answer. containerd answers only
	// after the last child process has closed the output.
	syncGrace      = 2 * time.Second
	privateTimeout = 5 * time.Second
	// leftRunning warns about runtimes that do not end a command when the client disconnects. CRI has no call to end a
	// command.
	leftRunning = "the command may still run: this runtime does not end it when its client goes"
)

func (o *execOptions) inOne(ctx context.Context, conn *client.Conn, c *runtimeapi.Container, s stream.Streams) (err error) {
	if kube.IsPaused(c) {
		return cli.WithHint(fmt.Errorf("container %s is paused", cli.ContainerName(c)), "`crishim unpause %s` lets it go on", shellwords.Quote(cli.ContainerName(c)))
	}
	if o.timeout > 0 {
		limit := o.timeout
		if o.sync {
			limit += syncGrace
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, o.errTimeout())
		defer cancel()
	}
	if o.sync {
		return o.runSync(ctx, conn, c, s)
	}
	left, err := o.stream(ctx, conn, c, s)
	var missing *cli.StatusError
	switch {
	case o.shell && errors.As(err, &missing) && missing.Code == cli.ExitNotFound:
		name := cli.ContainerName(c)
		missing.Cause = cli.WithHint(fmt.Errorf("there is no shell in %s", name), "`crishim debug %s` runs one from another image", shellwords.Quote(name))
	case left && errors.Is(err, stream.ErrDetached):
		return cli.NoteDetach(stream.ErrDetached, s, leftRunning)
	case errors.Is(err, stream.ErrDetached):
		return cli.NoteDetach(err, s, "the command keeps running")
	case left:
		o.session.Options.Warn("%s", leftRunning)
	}
	return err
}

func (o *execOptions) errTimeout() error {
	return fmt.Errorf("the command did not end within %s", o.timeout)
}

// stream runs the command over a streaming URL. stillRunning reports whether the command may keep running after an error.
func (o *execOptions) stream(ctx context.Context, conn *client.Conn, c *runtimeapi.Container, s stream.Streams) (stillRunning bool, err error) {
	request := &runtimeapi.ExecRequest{
		ContainerId: c.GetId(), Cmd: o.command, Tty: o.session.TTY,
		Stdin: o.session.Stdin, Stdout: true, Stderr: !o.session.TTY,
	}
	url := ""
	start := newStartErrorFilter(&s)
	session := o.session
	session.Options.OnDetach = func(ctx context.Context) error {
		_, err := conn.Crishim().DetachExec(ctx, &api.DetachExecRequest{Url: url})
		return err
	}
	err = session.Dial(ctx, conn, s, func(ctx context.Context) (_ string, err error) {
		url, err = conn.Exec(ctx, request, o.process)
		return url, err
	})
	err = start.orElse(cannotRun(err))
	if abandoned(ctx, err) && !conn.Embedded {
		ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), privateTimeout)
		defer cancel()
		stillRunning = !conn.IsDockershim(ask)
	}
	return stillRunning, err
}

// abandoned reports whether a session has ended before its command.
func abandoned(ctx context.Context, err error) bool {
	var signal *stream.SignalError
	var status *stream.ExitError
	if err == nil || errors.As(err, &status) {
		return false
	}
	return ctx.Err() != nil || errors.As(err, &signal) || errors.Is(err, stream.ErrDetached)
}

func (o *execOptions) runSync(ctx context.Context, conn *client.Conn, c *runtimeapi.Container, s stream.Streams) error {
	seconds := (o.timeout + time.Second - 1) / time.Second
	res, err := conn.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: c.GetId(), Cmd: o.command, Timeout: int64(seconds)}, o.process)
	err = cannotRun(err)
	switch {
	case status.Code(err) == codes.DeadlineExceeded && o.timeout > 0:
		return o.errTimeout()
	case status.Code(err) == codes.ResourceExhausted: // output over the runtime's limit; crishim's dockershim truncates it instead
		return cli.WithHint(err, "the output is too much for --sync; without it all arrives")
	case err != nil:
		return err
	case res.GetExitCode() < 0 && o.timeout > 0: // CRI-O: no process ends with such a status
		return o.errTimeout()
	}
	if start := startErrorIn(res.GetStderr(), int(res.GetExitCode())); start != nil && len(res.GetStdout()) == 0 {
		return start
	}
	_, outErr := s.Out.Write(res.GetStdout())
	_, errErr := s.Err.Write(res.GetStderr())
	for _, out := range []struct {
		name string
		text []byte
	}{{"stdout", res.GetStdout()}, {"stderr", res.GetStderr()}} {
		if len(res.GetStdout())+len(res.GetStderr()) >= api.MaxSyncOutput && len(out.text) >= api.MaxSyncOutput/2 {
			o.session.Options.Warn("%s is incomplete: --sync carries 16 MiB at most; without it all arrives", out.name)
		}
	}
	if code := res.GetExitCode(); code != 0 {
		return &stream.ExitError{Code: int(code)}
	}
	return errors.Join(outErr, errErr)
}

func (o *execOptions) sayWould(printer *cli.Printer, container string) error {
	return printer.Say("Would run in %s: %s", container, strings.Join(o.command, " "))
}

// inMany runs the command in each container. Without --parallel, it stops at the first failure. With --parallel, the
// status is the first exit status of a failed command in the order of the containers. If none of them could be started,
// it is the first 126 or 127. --ignore-errors turns failures into warnings, with and without --parallel.
func (o *execOptions) inMany(ctx context.Context, printer *cli.Printer, conn *client.Conn, containers []*runtimeapi.Container) error {
	containers = cli.NamePods(ctx, conn, containers)
	nameOf := cli.ContainerName
	if cli.PodNamesRepeat(containers) {
		nameOf = func(c *runtimeapi.Container) string { return cli.ContainerPathOf(c).FullName() }
	}
	if printer.DryRun() {
		for _, c := range containers {
			if err := o.sayWould(printer, nameOf(c)); err != nil {
				return err
			}
		}
		return nil
	}
	ignored := func(c *runtimeapi.Container, err error) bool {
		if !o.ignore || ctx.Err() != nil {
			return false
		}
		printer.Warn("%s: %w", nameOf(c), err)
		return true
	}
	if !o.parallel {
		for _, c := range containers {
			if printer.Compat && !o.quiet {
				fmt.Fprintf(printer.Out, "%s:\n", c.GetId())
			} else if !o.quiet && len(containers) > 1 {
				fmt.Fprintf(printer.Err, "==> %s <==\n", output.Sanitize(nameOf(c)))
			}
			if err := o.inOne(ctx, conn, c, o.session.Streams(printer)); err != nil && !ignored(c, err) {
				return err
			}
		}
		return nil
	}
	var line sync.Mutex
	var running sync.WaitGroup
	errs := make([]error, len(containers))
	for i, c := range containers {
		running.Go(func() {
			prefix := ""
			if !o.quiet && !printer.Compat {
				prefix = output.Sanitize(nameOf(c)) + ": "
			}
			out := cli.NewPrefixWriter(printer.Out, &line, prefix)
			errOut := cli.NewPrefixWriter(printer.Err, &line, prefix)
			err := errors.Join(o.inOne(ctx, conn, c, stream.Streams{Out: out, Err: errOut}), out.Flush(), errOut.Flush())
			if err != nil && !ignored(c, err) {
				errs[i] = cli.About(nameOf(c), err)
			}
		})
	}
	running.Wait()
	return cli.Join(errs...)
}
