package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/output"
)

// Run runs a command line with these verbs and returns the exit status (docs/exit-codes.md). args[0] is the program's
// name.
func Run(ctx context.Context, args []string, p *Process, groups []Group) int {
	ctx, signals := watchSignals(ctx, p.Exit)
	defer signals.stop()

	left := new(atomic.Bool) // kubectl-crishim has disconnected from this process in a pod
	switch firstWord(args) {
	case kube.IdleWord:
		return idle(ctx, p)
	case kube.RelayWord:
		return report(NewPrinter(p), argv.Line{}, signals.received(), false, relay(ctx, args[2:], p))
	case kube.NodeWord:
		p, args = attend(p, args, left, signals.incoming)
	}
	app := NewApp(p, len(args) > 0 && filepath.Base(args[0]) == "crictl", groups)
	app.in.run = func(ctx context.Context, p *Process, args []string) int { return Run(ctx, args, p, groups) }
	switch firstWord(args) {
	case completeVerb:
		complete(ctx, app, args[2:])
		return 0
	case completeBashVerb:
		completeBash(ctx, app, args[2:])
		return 0
	}
	line, err := argv.Arrange(app.Table(), args, IsFile)
	app.in.line = line
	if line.Compat {
		app.in.setCompat(true)
	}
	if err != nil && wantsJSONErrors(args) {
		app.printer.errorFormat = errorJSON
	}
	if app.in.Compat {
		dropIgnored(&line)
	}
	if err == nil {
		err = run(ctx, app, line, args)
	}
	if app.in.Compat {
		err = answerAsCrictl(app, line, args, err)
	}
	return report(app.printer, line, signals.received(), left.Load(), err)
}

// firstWord returns the word after the program's name, or "".
func firstWord(args []string) string {
	if len(args) < 2 {
		return ""
	}
	return args[1]
}

// run runs a parsed command line.
func run(ctx context.Context, app *App, line argv.Line, args []string) error {
	switch in := app.in; {
	case line.Version:
		_, err := fmt.Fprintf(in.Out, "crishim version %s %s/%s\n", in.OwnVersion(), runtime.GOOS, runtime.GOARCH)
		return err
	case line.Help:
		return helpPage(app, line).write(app.printer)
	case in.Cluster != nil && in.Cluster.One && OnNodes(line.Verb).There:
		return runThere(ctx, args[1:], in, app.connector)
	}
	err := Join(app.RunContext(ctx, line.Args), app.profiles.stop())
	app.connector.tracing.stop(err)
	return err
}

// answerAsCrictl prints the help page for usage errors for which crictl prints it. It returns nil if crictl succeeds, or
// else the error with crictl's text.
func answerAsCrictl(app *App, line argv.Line, args []string, err error) error {
	var usage *UsageError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &usage):
		if line.Verb == "pull" {
			err = About("pulling image", err)
		}
		return err
	case helpsInstead(line.Verb, usage.Kind):
		if usage.Kind == argv.NothingFound {
			app.printer.Note("%s", usage.Text)
		}
		return helpPage(app, line).write(app.printer)
	case usage.Crictl != "":
		usage.Text = asTyped(usage, args)
		_, writeErr := fmt.Fprintf(app.printer.Out, "Incorrect Usage: %s\n\n", output.Sanitize(usage.Text))
		return Join(err, writeErr, helpPage(app, line).write(app.printer))
	}
	return err
}

// report prints an error and returns the exit status. An interrupt is not reported to a client that has left.
func report(p *Printer, line argv.Line, signal syscall.Signal, left bool, err error) int {
	if err == nil {
		return 0
	}
	if code, _, ok := commandStatus(err); ok {
		for _, one := range Failures(err) {
			switch own, why, ok := commandStatus(one); {
			case !ok: // a further error, such as a failed clean-up
				p.fail(p.describe(one))
			case why != "":
				code := "cannot_run"
				if own == ExitNotFound {
					code = "command_not_found"
				}
				p.fail(failure{Code: code, Message: output.Sanitize(why), Hint: HintOf(one)})
			}
		}
		if p.Compat {
			return exitFailed
		}
		return code
	}
	if errors.Is(err, ErrFollowed) && (signal == 0 || signal == syscall.SIGINT || p.Compat) {
		return 0
	}
	if signal != 0 {
		word := "interrupted"
		if signal != syscall.SIGINT {
			word = signal.String() // such as "terminated" or "hangup"
		}
		if !left {
			p.fail(failure{Code: word, Message: word})
		}
		if p.Compat {
			return exitFailed
		}
		return exitSignals + int(signal)
	}
	for _, one := range Failures(err) {
		p.fail(p.describe(one))
	}
	return failureStatus(p, line, err)
}

func failureStatus(p *Printer, line argv.Line, err error) int {
	var usage *UsageError
	switch {
	case p.Compat && errors.As(err, &usage) && usage.Kind == argv.NoSuchCommand:
		return 3
	case p.Compat, errors.As(err, new(*nodeError)):
		return exitFailed
	case line.PassesStatus():
		return ExitOwnFailure
	case isUsage(err), errors.As(err, new(inputError)):
		return ExitUsage
	}
	return exitFailed
}
