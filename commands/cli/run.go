package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/fanout"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/stdinmux"
	"github.com/crishim/crishim/output"
)

// Run runs one command line of the app that newApp makes, args[0] being the program's
// name, and returns the status to exit with (docs/exit-codes.md).
func Run(ctx context.Context, args []string, env *Env, newApp func(*Env) *urfave.App) int {
	ctx, signals := watchSignals(ctx, env.Exit)
	defer signals.stop()

	run := env.Fresh(len(args) > 0 && filepath.Base(args[0]) == "crictl")
	if firstWord(args) == kube.IdleWord {
		return idle(ctx, run)
	}
	args = run.demuxStdin(args, signals.incoming)
	if run.part = partModes[firstWord(args)]; run.part != notPart {
		args = slices.Delete(slices.Clone(args), 1, 2)
		run.records, run.Err = run.Err, fanout.TextWriter{To: run.Err}
	}
	app := newApp(run)
	switch firstWord(args) {
	case completeVerb:
		complete(ctx, run, app, args[2:])
		return 0
	case completeBashVerb:
		completeBash(ctx, run, app, args[2:])
		return 0
	}
	line, err := Arrange(app, args)
	run.line, run.newApp = line, newApp
	run.Compat = run.Compat || line.compat
	if err != nil && wantsJSONErrors(args) {
		run.global.errorFormat = errorJSON
	}
	if run.Compat {
		line.dropIgnored()
	}
	if err == nil {
		err = run.do(ctx, app, line, args)
	}
	var usage *UsageError
	switch errors.As(err, &usage); {
	case run.Compat && line.helpsInstead(err):
		return report(run, line, 0, line.page.write(run.Out, run.width()))
	case run.Compat && usage != nil && usage.flag != "":
		_, writeErr := fmt.Fprintf(run.Out, "Incorrect Usage: %s\n\n", output.Sanitize(asTyped(usage, args)))
		err = Join(err, writeErr, line.page.write(run.Out, run.width()))
	}
	return report(run, line, syscall.Signal(signals.first.Load()), err)
}

// idle keeps a container running for the execs of command lines, until a signal comes or nothing listens any more at the
// socket that is mounted in it: a runtime that is started again has another one, which the next container gets.
func idle(ctx context.Context, env *Env) int {
	endpoint, err := client.ParseEndpoint(env.getenv("CONTAINER_RUNTIME_ENDPOINT"))
	if err != nil || endpoint.Network != "unix" {
		<-ctx.Done()
	}
	for ctx.Err() == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", endpoint.Address)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			env.Note("crishim: nothing listens at %s any more", endpoint.Address)
			return exitFailed
		case err == nil: // it is closed when the runtime ends, or when that has waited long enough for a call
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			conn.Read(make([]byte, 1)) //nolint:errcheck // nothing comes
			stop()
			conn.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return 0
}

// do does what a line that could be read asks for.
func (env *Env) do(ctx context.Context, app *urfave.App, line commandLine, args []string) error {
	switch {
	case line.Version:
		_, err := fmt.Fprintf(env.Out, "crishim version %s %s/%s\n", OwnVersion(env), runtime.GOOS, runtime.GOARCH)
		return err
	case line.help != nil:
		return line.help.write(env.Out, env.width())
	case env.Remote != nil && env.Remote.Alone != nil:
		return env.Remote.Alone(ctx, line.lineFor(env, args[1:]))
	}
	err := Join(app.RunContext(ctx, line.Args), env.profiles.stop())
	env.tracing.stop(err)
	return err
}

// RunLine runs another command line in this process, on the runtime that a verb is connected to and with
// its global flags, and returns the status.
func (env *Env) RunLine(ctx context.Context, conn *client.Conn, args ...string) int {
	own := *env
	own.Exit = nil
	line := []string{"crishim", "--runtime-endpoint=" + conn.RuntimeEndpoint, "--image-endpoint=" + conn.ImageEndpoint}
	for _, arg := range env.line.Args[1:] {
		if !looksLikeFlag(arg) {
			break
		}
		if name := flagName(arg); !slices.Contains(ownFlags, name) && name != "runtime-endpoint" && name != "image-endpoint" {
			line = append(line, arg)
		}
	}
	return Run(ctx, append(line, args...), &own, env.newApp)
}

// firstWord returns what follows the program's name; "" where nothing does.
func firstWord(args []string) string {
	if len(args) < 2 {
		return ""
	}
	return args[1]
}

// wantsJSONErrors looks for --error-format=json in a line that cannot be read.
func wantsJSONErrors(args []string) bool {
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			return false
		case name != "--error-format":
		case joined:
			return value == errorJSON
		case i+1 < len(args):
			return args[i+1] == errorJSON
		}
	}
	return false
}

// sameSignal is how soon a second signal is still the first: timeout(1), for
// one, sends each to the process and to its group.
const sameSignal = 300 * time.Millisecond

// ErrFollowed ends a verb that runs until it is interrupted: that is success.
var ErrFollowed = errors.New("interrupted")

// signalWatch turns the first SIGINT, SIGTERM or SIGHUP into a cancelled
// context and the second into the process's end.
type signalWatch struct {
	incoming chan os.Signal
	first    atomic.Int32 // the signal that came first, 0 if none did
	stop     func()
}

func watchSignals(ctx context.Context, exit func(int)) (context.Context, *signalWatch) {
	ctx, cancel := context.WithCancel(ctx)
	incoming := make(chan os.Signal, 2)
	signal.Notify(incoming, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	watch := &signalWatch{incoming: incoming}
	watch.stop = func() {
		signal.Stop(incoming)
		close(done)
		cancel()
	}
	go func() {
		var since time.Time
		for {
			select {
			case <-done:
				return
			case s := <-incoming:
				number, ok := s.(syscall.Signal)
				switch {
				case !ok:
				case watch.first.CompareAndSwap(0, int32(number)):
					since = time.Now()
					cancel()
				case exit != nil && time.Since(since) > sameSignal:
					exit(exitSignals + int(number))
				}
			}
		}
	}()
	return ctx, watch
}

// demuxStdin takes kube.StdinMuxWord off a command line, and the signals off its standard input.
func (env *Env) demuxStdin(args []string, signals chan<- os.Signal) []string {
	if firstWord(args) != kube.StdinMuxWord {
		return args
	}
	from := env.In
	in, pipe := io.Pipe()
	env.In = in
	go func() {
		err := stdinmux.Read(from, pipe, func(s syscall.Signal) {
			select {
			case signals <- s:
			default: // enough have come
			}
		})
		if err != nil {
			env.Debugf("read standard input: %v", err)
		}
	}()
	return slices.Delete(slices.Clone(args), 1, 2)
}
