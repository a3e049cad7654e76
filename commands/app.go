package commands

import "github.com/urfave/cli/v2"

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
		Flags:                     append(env.global.flags(), helpFlag()),
		Before:                    readGlobals(env),
		Writer:                    &env.help,
		ErrWriter:                 env.Err,
		Reader:                    env.In,
		HideVersion:               true,
		HideHelp:                  true,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		Action:                    cli.ShowAppHelp,
	}
	app.OnUsageError = func(_ *cli.Context, err error, _ bool) error {
		return addUsage(app.UsageText, flagComplaint(app.Flags, err))
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
	usage := parent + c.Name + " [options] " + c.ArgsUsage
	c.HideHelp = true
	c.Flags = append(c.Flags, helpFlag())
	c.OnUsageError = func(_ *cli.Context, err error, _ bool) error {
		return addUsage(usage, flagComplaint(c.Flags, err))
	}
	if action := c.Action; action != nil {
		c.Action = func(ctx *cli.Context) error { return addUsage(usage, action(ctx)) }
	}
	for _, sub := range c.Subcommands {
		finishCommand(sub, parent+c.Name+" ")
	}
}

// helpFlag is each command's own --help. urfave's is one variable of the
// process that every command line writes; two of them would race.
func helpFlag() cli.Flag {
	return &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help", DisableDefaultText: true}
}
