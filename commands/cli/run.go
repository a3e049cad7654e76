package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/internal/kube"
)

// Run runs a command line of the app that newApp makes, args[0] being the program's name, and returns the
// exit status (docs/exit-codes.md).
func Run(ctx context.Context, args []string, env *Env, newApp func(*Env) *App) int {
	ctx, signals := watchSignals(ctx, env.Exit)
	defer signals.stop()

	run := env.Fresh(len(args) > 0 && filepath.Base(args[0]) == "crictl")
	switch firstWord(args) {
	case kube.IdleWord:
		return idle(ctx, run)
	case kube.RelayWord:
		return report(run, argv.Line{}, syscall.Signal(signals.first.Load()), run.relay(ctx, args[2:]))
	case kube.NodeWord:
		args = run.attend(args, signals.incoming)
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
	line, err := argv.Arrange(app.Table(), args, IsFile)
	run.line, run.newApp = line, newApp
	run.Compat = run.Compat || line.Compat
	if err != nil && wantsJSONErrors(args) {
		run.global.errorFormat = errorJSON
	}
	if run.Compat {
		dropIgnored(&line)
	}
	if err == nil {
		err = run.do(ctx, app, line, args)
	}
	if run.Compat {
		err = run.answerAsCrictl(app, line, args, err)
	}
	return report(run, line, syscall.Signal(signals.first.Load()), err)
}

// do runs a command line that could be read.
func (env *Env) do(ctx context.Context, app *App, line argv.Line, args []string) error {
	switch {
	case line.Version:
		_, err := fmt.Fprintf(env.Out, "crishim version %s %s/%s\n", OwnVersion(env), runtime.GOOS, runtime.GOARCH)
		return err
	case line.Help:
		return helpPage(app, line).write(env)
	case env.Cluster != nil && env.Cluster.One && OnNodes(line.Verb).There:
		return env.there(ctx, args[1:])
	}
	err := Join(app.RunContext(ctx, line.Args), env.profiles.stop())
	env.tracing.stop(err)
	return err
}

// ownFlags are global flags that RunLine does not pass on. Without a cluster it sets the endpoints itself.
var (
	ownFlags      = []string{"error-format", "color", "profile-cpu", "profile-mem"}
	endpointFlags = []string{"runtime-endpoint", "image-endpoint"}
)

// RunLine runs another command line on the runtime of a verb, with its global flags, and returns the exit
// status.
func (env *Env) RunLine(ctx context.Context, conn *client.Conn, args ...string) int {
	own := *env
	own.Exit = nil
	line, left := []string{"crishim"}, ownFlags
	if env.Cluster == nil {
		line = append(line, "--runtime-endpoint="+conn.RuntimeEndpoint, "--image-endpoint="+conn.ImageEndpoint)
		left = slices.Concat(left, endpointFlags)
	}
	for _, arg := range env.line.Args[1:] {
		if !argv.IsFlag(arg) {
			break
		}
		if name := argv.FlagName(arg); !slices.Contains(left, name) {
			line = append(line, arg)
		}
	}
	return Run(ctx, append(line, args...), &own, env.newApp)
}

// firstWord returns the word after the program's name, or "".
func firstWord(args []string) string {
	if len(args) < 2 {
		return ""
	}
	return args[1]
}

// wantsJSONErrors looks for --error-format=json in a command line that cannot be read.
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

// sameSignal is the time in which a second signal counts as the first: timeout(1) sends each to the
// process and to its group.
const sameSignal = 300 * time.Millisecond

// ErrFollowed ends a verb that runs until it is interrupted, which is success.
var ErrFollowed = errors.New("interrupted")

// signalWatch turns the first SIGINT, SIGTERM or SIGHUP into a cancelled
// context, whose cause is the signal, and the second into the process's end.
type signalWatch struct {
	incoming chan os.Signal
	first    atomic.Int32 // the signal that came first, 0 if none did
	stop     func()
}

func watchSignals(ctx context.Context, exit func(int)) (context.Context, *signalWatch) {
	ctx, cancel := context.WithCancelCause(ctx)
	incoming := make(chan os.Signal, 2)
	signal.Notify(incoming, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	watch := &signalWatch{incoming: incoming}
	watch.stop = func() {
		signal.Stop(incoming)
		close(done)
		cancel(nil)
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
					cancel(stream.Signaled(number))
				case exit != nil && time.Since(since) > sameSignal:
					exit(exitSignals + int(number))
				}
			}
		}
	}()
	return ctx, watch
}
