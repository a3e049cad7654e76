package cli

import (
	"github.com/crishim/crishim/commands/cli/argv"
	urfave "github.com/urfave/cli/v2"
)

// Verb declares a command of the program.
type Verb struct {
	Name        string
	Aliases     []string
	Usage       string
	ArgsUsage   string
	Args        Args // completes the arguments; nil if there are none
	Description string
	Subcommands []*Verb
	Flags       []urfave.Flag
	Action      urfave.ActionFunc
}

// Group is a section of the help page with the constructors of its verbs.
type Group struct {
	Title string
	Verbs []func(*Env) *Verb
}

// App is the program as urfave knows it, and how the arguments of its verbs are completed.
type App struct {
	*urfave.App
	args map[string]Args // by the verb's name
}

// NewApp builds the commands of one command line: urfave's commands remember what they parsed.
func NewApp(env *Env, groups []Group) *App {
	app := &App{args: map[string]Args{}, App: &urfave.App{
		Name:                      "crishim",
		HelpName:                  "crishim",
		Usage:                     "debug containers and pods through CRI, with or without a CRI runtime",
		UsageText:                 "[global options] COMMAND [options] [arguments]",
		Flags:                     append(env.globalFlags(), helpFlag()),
		Before:                    env.readGlobals,
		Writer:                    env.Out,
		ErrWriter:                 env.Err,
		Reader:                    env.In,
		HideVersion:               true,
		HideHelp:                  true,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*urfave.Context, error) {},
	}}
	app.OnUsageError = func(_ *urfave.Context, err error, _ bool) error {
		return argv.AddUsage("crishim "+app.UsageText, flagComplaint(app.Flags, err))
	}
	for _, group := range groups {
		for _, verb := range group.Verbs {
			v := verb(env)
			app.args[v.Name] = v.Args
			app.Commands = append(app.Commands, v.command("crishim ", group.Title))
		}
	}
	return app
}

func (v *Verb) command(parent, category string) *urfave.Command {
	usage := parent + v.Name + " [options] " + v.ArgsUsage
	c := &urfave.Command{
		Name: v.Name, Aliases: v.Aliases, Usage: v.Usage, ArgsUsage: v.ArgsUsage, Description: v.Description,
		Category: category, Flags: append(v.Flags, helpFlag()), HideHelp: true,
	}
	c.OnUsageError = func(_ *urfave.Context, err error, _ bool) error {
		return argv.AddUsage(usage, flagComplaint(c.Flags, err))
	}
	c.Action = func(ctx *urfave.Context) error { return argv.AddUsage(usage, v.Action(ctx)) }
	for _, sub := range v.Subcommands {
		c.Subcommands = append(c.Subcommands, sub.command(parent+v.Name+" ", ""))
	}
	return c
}

// helpFlag returns a --help of its own for each command. urfave's is a variable of the process,
// for which two command lines would race.
func helpFlag() urfave.Flag { return BoolFlag(new(bool), "help", "show help", "h") }

// Table returns the flags and commands of the program for argv.
func (app *App) Table() *argv.Command {
	return &argv.Command{Flags: func() argv.Flags { return tableOf(app.Flags) }, Commands: tables(app.Commands)}
}

func tables(commands []*urfave.Command) []argv.Command {
	all := make([]argv.Command, len(commands))
	for i, c := range commands {
		all[i] = argv.Command{
			Names: c.Names(), ArgsUsage: c.ArgsUsage,
			Flags: func() argv.Flags { return tableOf(c.Flags) }, Commands: tables(c.Subcommands),
		}
	}
	return all
}

func tableOf(flags []urfave.Flag) argv.Flags {
	help := argv.Flag{Name: "help"}
	table := argv.Flags{"help": help, "h": help}
	for _, flag := range flags {
		_, boolean := flag.(boolFlag)
		_, optional := flag.(WaitFlag)
		for _, name := range flag.Names() {
			table[name] = argv.Flag{Name: flag.Names()[0], Value: !boolean && !optional, Optional: optional}
		}
	}
	return table
}
