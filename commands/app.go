// Package commands is crishim's command line. The verbs are in directories by noun, one file
// each from flags to options to a request to the output; what they share is in cli. This
// file has the table of them.
package commands

import (
	"context"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/container"
	"github.com/crishim/crishim/commands/image"
	"github.com/crishim/crishim/commands/manifest"
	"github.com/crishim/crishim/commands/node"
	"github.com/crishim/crishim/commands/pod"
)

// Main is the whole program: it runs one command line, args[0] being the program's name,
// and returns the status to exit with (docs/exit-codes.md).
func Main(ctx context.Context, args []string, env *cli.Env) int {
	return cli.Run(ctx, args, env, newApp)
}

// verb is a row of the table: a constructor, because urfave's commands remember what they parsed.
type verb = func(*cli.Env) *urfave.Command

// group is a part of the help page.
type group struct {
	title string
	verbs []verb
}

// groups returns the table of verbs, in the order of the help page.
func groups() []group {
	return []group{
		{"Look", []verb{
			container.NewPs,
			pod.NewPods,
			image.NewImages,
			image.NewHistory,
			container.NewDiff,
			container.NewLogs,
			manifest.NewDescribe,
			manifest.NewWhy,
			container.NewInspect,
			pod.NewInspectp,
			image.NewInspecti,
			node.NewTop,
			container.NewEvents,
			container.NewStats,
			pod.NewStatsp,
			pod.NewMetricsp,
			pod.NewMetricDescs,
			node.NewWho,
		}},
		{"Act", []verb{
			container.NewExec,
			container.NewAttach,
			container.NewCp,
			pod.NewPortForward,
			container.NewDebug,
			container.NewWait,
			container.NewKill,
			container.NewPause,
			container.NewUnpause,
		}},
		{"Run", []verb{
			container.NewRun,
			container.NewStop,
			container.NewRestart,
			container.NewRm,
			manifest.NewApply,
			manifest.NewDelete,
			manifest.NewSync,
			manifest.NewGC,
		}},
		{"CRI steps", []verb{
			pod.NewRunp,
			container.NewCreate,
			container.NewStart,
			container.NewUpdate,
			container.NewCheckpoint,
			pod.NewStopp,
			pod.NewRmp,
		}},
		{"Images", []verb{
			image.NewPull,
			image.NewSave,
			image.NewLoad,
			image.NewRmi,
			image.NewImagefsinfo,
		}},
		{"Node", []verb{
			node.NewVersion,
			node.NewInfo,
			node.NewDf,
			node.NewEndpoints,
			node.NewDoctor,
			node.NewDump,
			node.NewConfig,
			node.NewServe,
			node.NewRuntimeConfig,
			node.NewUpdateRuntimeConfig,
		}},
		{"Shell", []verb{
			node.NewCompletion,
		}},
	}
}

func newApp(env *cli.Env) *urfave.App {
	app := &urfave.App{
		Name:                      "crishim",
		HelpName:                  "crishim",
		Usage:                     "debug containers and pods through CRI, with or without a CRI runtime",
		UsageText:                 "crishim [global options] COMMAND [options] [arguments]",
		Flags:                     append(env.GlobalFlags(), helpFlag()),
		Before:                    cli.ReadGlobals(env),
		Writer:                    env.Out,
		ErrWriter:                 env.Err,
		Reader:                    env.In,
		HideVersion:               true,
		HideHelp:                  true,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*urfave.Context, error) {},
	}
	app.OnUsageError = func(_ *urfave.Context, err error, _ bool) error {
		return cli.AddUsage(app.UsageText, cli.FlagComplaint(app.Flags, err))
	}
	for _, g := range groups() {
		for _, verb := range g.verbs {
			command := verb(env)
			command.Category = g.title
			finishCommand(command, "crishim ")
			app.Commands = append(app.Commands, command)
		}
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
	return cli.BoolFlag(new(bool), "help", "show help", "h")
}

// App returns the table of verbs for the pages that hack/docs makes of it.
func App() *urfave.App {
	env := cli.Env{LookupEnv: func(string) (string, bool) { return "", false }}
	return newApp(env.Fresh(false))
}
