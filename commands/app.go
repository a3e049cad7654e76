package commands

import (
	"context"

	"github.com/urfave/cli/v2"
)

// verbs is the table of commands: one constructor per file, in the order of
// the help page. Constructors, not variables, because urfave's commands
// remember what they parsed.
func verbs() []func(*Env) *cli.Command {
	return []func(*Env) *cli.Command{
		newVersion,
		newInfo,
		newEndpoints,
		newDoctor,
		newConfig,
		newCompletion,
		newMan,
		newServe,
		newRuntimeConfig,
		newUpdateRuntimeConfig,
		newImages,
		newPull,
		newRmi,
		newInspecti,
		newImagefsinfo,
		newRunp,
		newPods,
		newInspectp,
		newApply,
		newDelete,
		newDescribe,
		newSync,
		newGC,
		newStopp,
		newRmp,
		newCreate,
		newStart,
		newRun,
		newPs,
		newInspect,
		newLogs,
		newUpdate,
		newStop,
		newRm,
		newExec,
		newAttach,
		newPortForward,
		newWait,
		newCp,
		newDebug,
		newStats,
		newStatsp,
		newMetricDescs,
		newMetricsp,
		newEvents,
		newCheckpoint,
	}
}

func newApp(env *Env) *cli.App {
	app := &cli.App{
		Name:                      "crishim",
		HelpName:                  "crishim",
		Usage:                     "debug containers and pods through CRI, with or without a CRI runtime",
		UsageText:                 "crishim [global options] COMMAND [options] [arguments]",
		Flags:                     append(globalFlags(), helpFlag()),
		Before:                    readGlobals(env),
		Writer:                    &env.help,
		ErrWriter:                 env.Err,
		Reader:                    env.In,
		HideVersion:               true,
		HideHelp:                  true,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              rootUsageError,
		Action:                    cli.ShowAppHelp,
	}
	for _, verb := range verbs() {
		command := verb(env)
		finishCommand(command, "crishim ")
		app.Commands = append(app.Commands, command)
	}
	return app
}

// finishCommand sets what every verb needs and urfave does not hand down.
func finishCommand(c *cli.Command, parent string) {
	full := parent + c.Name
	c.HideHelp = true
	c.Flags = append(c.Flags, helpFlag())
	c.OnUsageError = func(_ *cli.Context, err error, _ bool) error {
		return &usageError{text: flagComplaint(err), usage: full + " [options] " + c.ArgsUsage}
	}
	if action := c.Action; action != nil {
		c.Action = func(ctx *cli.Context) error {
			return addUsage(full+" [options] "+c.ArgsUsage, action(ctx))
		}
	}
	for _, sub := range c.Subcommands {
		finishCommand(sub, full+" ")
	}
}

// helpFlag is each command's own --help. urfave's is one variable of the
// process that every command line writes; two of them would race.
func helpFlag() cli.Flag {
	return &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help", DisableDefaultText: true}
}

func rootUsageError(_ *cli.Context, err error, _ bool) error {
	return &usageError{text: flagComplaint(err), usage: "crishim [global options] COMMAND [options] [arguments]"}
}

// action adapts a verb to urfave: parse turns flags into options and
// complains about usage only; run does the work.
func action[O any](env *Env, parse func(*Env, *cli.Context) (O, error), run func(context.Context, *Env, O) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		options, err := parse(env, c)
		if err != nil {
			return err
		}
		return run(c.Context, env, options)
	}
}
