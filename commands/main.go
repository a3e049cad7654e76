// Package commands is crishim's command line: one verb per file, each from
// flags to options to a request to the output.
//
// Main is the whole program behind a function that a test can call. The table
// of verbs is in app.go.
package commands

import (
	"context"
	"path/filepath"
)

// Main runs one command line, args[0] being the program's name, and returns
// the status to exit with (docs/exit-codes.md).
func Main(ctx context.Context, args []string, env *Env) int {
	ctx, signals := watchSignals(ctx, env.Exit)
	defer signals.stop()

	run := env.fresh(len(args) > 0 && filepath.Base(args[0]) == "crictl")
	app := newApp(run)
	if len(args) > 1 && args[1] == completeVerb {
		complete(ctx, run, app, args[2:])
		return 0
	}
	if len(args) > 1 && args[1] == completeBashVerb {
		completeBash(ctx, run, app, args[2:])
		return 0
	}
	line, err := arrange(app, args)
	run.compat = run.compat || line.compat
	if err == nil && line.version {
		err = printOwnVersion(run)
	} else if err == nil {
		err = join(app.RunContext(ctx, line.args), run.profiles.stop(), run.help.err)
	}
	if run.compat && helpsInstead(line, err) {
		return report(run, line, 0, join(app.RunContext(ctx, []string{"crishim", line.verb, "--help"}), run.help.err))
	}
	return report(run, line, signals.caught(), err)
}
