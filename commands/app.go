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

// verb is a row of the table: what makes the command, and what it does on other machines.
type verb struct {
	new   func(*cli.Env) *urfave.Command // a constructor, because urfave's commands remember what they parsed
	nodes cli.OverNodes
}

// group is a part of the help page.
type group struct {
	title string
	verbs []verb
}

// groups returns the table of verbs, in the order of the help page.
func groups() []group {
	// On several machines at once. Lines are shown as they come, other results are merged into one table.
	reads := cli.OverNodes{Rights: kube.RightsRead}
	readsLines := cli.OverNodes{Rights: kube.RightsRead, Lines: true, Files: true}
	runs := cli.OverNodes{Rights: kube.RightsChange, Lines: true}
	changes := cli.OverNodes{Rights: kube.RightsChange, Lines: true, Changes: true}
	// On one machine at a time.
	readsAlone := cli.OverNodes{Rights: kube.RightsRead, Alone: true}
	readsLogs := cli.OverNodes{Rights: kube.RightsRead, Alone: true, Files: true}
	changesAlone := cli.OverNodes{Rights: kube.RightsChange, Alone: true}
	makesAlone := cli.OverNodes{Rights: kube.RightsChange, Alone: true, Files: true} // and, on Docker, links to logs
	hostAlone := cli.OverNodes{Rights: kube.RightsHost, Alone: true, Files: true}
	return []group{
		{"Look", []verb{
			{container.NewPs, reads},
			{pod.NewPods, reads},
			{image.NewImages, reads},
			{image.NewHistory, readsAlone},
			{container.NewDiff, readsAlone},
			{container.NewLogs, readsLines},
			{manifest.NewDescribe, readsLogs},
			{manifest.NewWhy, readsLogs},
			{container.NewInspect, reads},
			{pod.NewInspectp, reads},
			{image.NewInspecti, reads},
			{node.NewTop, makesAlone},
			{container.NewEvents, readsAlone},
			{container.NewStats, reads},
			{pod.NewStatsp, reads},
			{pod.NewMetricsp, reads},
			{pod.NewMetricDescs, reads},
			{node.NewWho, readsAlone},
		}},
		{"Act", []verb{
			{container.NewExec, runs},
			{container.NewAttach, changesAlone},
			{container.NewCp, changesAlone},
			{pod.NewPortForward, changesAlone},
			{container.NewDebug, makesAlone},
			{container.NewWait, readsAlone},
			{container.NewKill, changes},
			{container.NewPause, changes},
			{container.NewUnpause, changes},
		}},
		{"Run", []verb{
			{container.NewRun, makesAlone},
			{container.NewStop, changes},
			{container.NewRestart, changes},
			{container.NewRm, changes},
			{manifest.NewApply, hostAlone},
			{manifest.NewDelete, hostAlone},
			{manifest.NewSync, hostAlone},
			{manifest.NewGC, hostAlone},
		}},
		{"CRI steps", []verb{
			{pod.NewRunp, makesAlone},
			{container.NewCreate, makesAlone},
			{container.NewStart, makesAlone},
			{container.NewUpdate, changesAlone},
			{container.NewCheckpoint, changesAlone},
			{pod.NewStopp, changes},
			{pod.NewRmp, changes},
		}},
		{"Images", []verb{
			{image.NewPull, runs},
			{image.NewSave, readsAlone},
			{image.NewLoad, changesAlone},
			{image.NewRmi, changes},
			{image.NewImagefsinfo, reads},
		}},
		{"Node", []verb{
			{node.NewVersion, reads},
			{node.NewInfo, reads},
			{node.NewDf, reads},
			{node.NewEndpoints, readsAlone},
			{node.NewDoctor, readsAlone},
			{node.NewDump, readsLogs},
			{node.NewConfig, readsAlone},
			{node.NewServe, hostAlone},
			{node.NewRuntimeConfig, reads},
			{node.NewUpdateRuntimeConfig, changesAlone},
		}},
		{"Shell", []verb{
			{node.NewCompletion, readsAlone},
		}},
	}
}

func newApp(env *cli.Env) *urfave.App {
	env.OverNodes = map[string]cli.OverNodes{}
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
			command := verb.new(env)
			command.Category = g.title
			env.OverNodes[command.Name] = verb.nodes
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
