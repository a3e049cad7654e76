package commands

import (
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/container"
	"github.com/crishim/crishim/commands/image"
	"github.com/crishim/crishim/commands/manifest"
	"github.com/crishim/crishim/commands/node"
	"github.com/crishim/crishim/commands/pod"
)

import urfave "github.com/urfave/cli/v2"

// verbs is the table of commands: one constructor per file, in the order of
// the help page. Constructors, not variables, because urfave's commands
// remember what they parsed.
func verbs() []func(*cli.Env) *urfave.Command {
	return []func(*cli.Env) *urfave.Command{
		node.NewVersion,
		node.NewInfo,
		node.NewEndpoints,
		node.NewDoctor,
		node.NewConfig,
		node.NewCompletion,
		node.NewMan,
		node.NewServe,
		node.NewRuntimeConfig,
		node.NewUpdateRuntimeConfig,
		image.NewImages,
		image.NewPull,
		image.NewRmi,
		image.NewInspecti,
		image.NewImagefsinfo,
		pod.NewRunp,
		pod.NewPods,
		pod.NewInspectp,
		manifest.NewApply,
		manifest.NewDelete,
		manifest.NewDescribe,
		manifest.NewSync,
		manifest.NewGC,
		pod.NewStopp,
		pod.NewRmp,
		container.NewCreate,
		container.NewStart,
		container.NewRun,
		container.NewPs,
		container.NewInspect,
		container.NewLogs,
		container.NewUpdate,
		container.NewStop,
		container.NewRm,
		container.NewExec,
		container.NewAttach,
		pod.NewPortForward,
		container.NewWait,
		container.NewCp,
		container.NewDebug,
		container.NewStats,
		pod.NewStatsp,
		pod.NewMetricDescs,
		pod.NewMetricsp,
		container.NewEvents,
		container.NewCheckpoint,
	}
}

func newApp(env *cli.Env) *urfave.App {
	app := &urfave.App{
		Name:                      "crishim",
		HelpName:                  "crishim",
		Usage:                     "debug containers and pods through CRI, with or without a CRI runtime",
		UsageText:                 "crishim [global options] COMMAND [options] [arguments]",
		Flags:                     append(env.Global.Flags(), helpFlag()),
		Before:                    cli.ReadGlobals(env),
		Writer:                    &env.Help,
		ErrWriter:                 env.Err,
		Reader:                    env.In,
		HideVersion:               true,
		HideHelp:                  true,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*urfave.Context, error) {},
		Action:                    urfave.ShowAppHelp,
	}
	app.OnUsageError = func(_ *urfave.Context, err error, _ bool) error {
		return cli.AddUsage(app.UsageText, cli.FlagComplaint(app.Flags, err))
	}
	for _, verb := range verbs() {
		command := verb(env)
		finishCommand(command, "crishim ")
		app.Commands = append(app.Commands, command)
	}
	return app
}

// finishCommand sets what every verb needs and urfave does not hand down.
func finishCommand(c *urfave.Command, parent string) {
	usage := parent + c.Name + " [options] " + c.ArgsUsage
	c.HideHelp = true
	c.Flags = append(c.Flags, helpFlag())
	c.OnUsageError = func(_ *urfave.Context, err error, _ bool) error {
		return cli.AddUsage(usage, cli.FlagComplaint(c.Flags, err))
	}
	if action := c.Action; action != nil {
		c.Action = func(ctx *urfave.Context) error { return cli.AddUsage(usage, action(ctx)) }
	}
	for _, sub := range c.Subcommands {
		finishCommand(sub, parent+c.Name+" ")
	}
}

// helpFlag is each command's own --help. urfave's is one variable of the
// process that every command line writes; two of them would race.
func helpFlag() urfave.Flag {
	return &urfave.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help", DisableDefaultText: true}
}
