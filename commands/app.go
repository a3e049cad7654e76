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
	"github.com/crishim/crishim/internal/kube"
)

// Main is the whole program: it runs one command line, args[0] being the program's name,
// and returns the status to exit with (docs/exit-codes.md).
func Main(ctx context.Context, args []string, env *cli.Env) int {
	return cli.Run(ctx, args, env, newApp)
}

// group is a part of the help page.
type group struct {
	title string
	verbs []func(*cli.Env) *urfave.Command
}

// groups returns the table of verbs, in the order of the help page. Constructors, not variables,
// because urfave's commands remember what they parsed.
func groups() []group {
	type verbs = []func(*cli.Env) *urfave.Command
	return []group{
		{"Look", verbs{
			container.NewPs, pod.NewPods, image.NewImages, image.NewHistory, container.NewDiff, container.NewLogs, manifest.NewDescribe, manifest.NewWhy, container.NewInspect, pod.NewInspectp, image.NewInspecti,
			node.NewTop, container.NewEvents, container.NewStats, pod.NewStatsp, pod.NewMetricsp, pod.NewMetricDescs, node.NewWho,
		}},
		{"Act", verbs{container.NewExec, container.NewAttach, container.NewCp, pod.NewPortForward, container.NewDebug, container.NewWait, container.NewKill, container.NewPause, container.NewUnpause}},
		{"Run", verbs{container.NewRun, container.NewStop, container.NewRestart, container.NewRm, manifest.NewApply, manifest.NewDelete, manifest.NewSync, manifest.NewGC}},
		{"CRI steps", verbs{pod.NewRunp, container.NewCreate, container.NewStart, container.NewUpdate, container.NewCheckpoint, pod.NewStopp, pod.NewRmp}},
		{"Images", verbs{image.NewPull, image.NewSave, image.NewLoad, image.NewRmi, image.NewImagefsinfo}},
		{"Node", verbs{
			node.NewVersion, node.NewInfo, node.NewDf, node.NewEndpoints, node.NewDoctor, node.NewDump, node.NewConfig, node.NewServe, node.NewRuntimeConfig, node.NewUpdateRuntimeConfig,
		}},
		{"Shell", verbs{node.NewCompletion, node.NewMan, node.NewSchema}},
	}
}

// overNodes returns what each verb does on other machines.
func overNodes() map[string]cli.OverNodes {
	reads := cli.OverNodes{Rights: kube.RightsRead}
	shows := cli.OverNodes{Rights: kube.RightsRead, Lines: true, Files: true}
	runs := cli.OverNodes{Rights: kube.RightsChange, Lines: true}
	changes := cli.OverNodes{Rights: kube.RightsChange, Lines: true, Changes: true}
	alone := func(rights string) cli.OverNodes { return cli.OverNodes{Rights: rights, Alone: true} }
	readsLogs := cli.OverNodes{Rights: kube.RightsRead, Alone: true, Files: true}
	readsAlone, changesAlone := alone(kube.RightsRead), alone(kube.RightsChange)
	makesAlone := cli.OverNodes{Rights: kube.RightsChange, Alone: true, Files: true} // and, on Docker, links to logs
	hostAlone := cli.OverNodes{Rights: kube.RightsHost, Alone: true, Files: true}
	return map[string]cli.OverNodes{
		"ps": reads, "pods": reads, "images": reads, "inspect": reads, "inspectp": reads, "inspecti": reads,
		"stats": reads, "statsp": reads, "metricsp": reads, "metricdescs": reads,
		"version": reads, "info": reads, "df": reads, "imagefsinfo": reads, "runtime-config": reads,
		"logs": shows, "exec": runs, "pull": runs,
		"stop": changes, "kill": changes, "pause": changes, "unpause": changes, "restart": changes, "rm": changes,
		"stopp": changes, "rmp": changes, "rmi": changes,

		"describe": readsLogs, "history": readsAlone, "diff": readsAlone, "dump": readsLogs, "events": readsAlone, "wait": readsAlone, "who": readsAlone, "why": readsLogs, "save": readsAlone,
		"endpoints": readsAlone, "doctor": readsAlone, "config": readsAlone, "completion": readsAlone, "man": readsAlone, "schema": readsAlone,
		"attach": changesAlone, "cp": changesAlone, "port-forward": changesAlone, "debug": makesAlone, "run": makesAlone, "top": makesAlone,
		"runp": makesAlone, "create": makesAlone, "start": makesAlone, "update": changesAlone, "checkpoint": changesAlone,
		"load": changesAlone, "update-runtime-config": changesAlone,
		"apply": hostAlone, "delete": hostAlone, "sync": hostAlone, "gc": hostAlone, "serve": hostAlone,
	}
}

func newApp(env *cli.Env) *urfave.App {
	env.OverNodes = overNodes()
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
	return &urfave.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help", DisableDefaultText: true}
}

// Pages returns docs/commands by file name: the same as the help, for reading on the web.
func Pages() map[string]string {
	env := cli.Env{LookupEnv: func(string) (string, bool) { return "", false }}
	return node.Pages(newApp(env.Fresh(false)))
}
