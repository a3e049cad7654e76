package cli

import (
	"context"
	"slices"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/internal/gogc"
)

// App is the urfave application for one command line, with the parts that its verbs share.
type App struct {
	*urfave.App
	parts
	groups []Group
	args   map[string]Args // by the verb's name
}

// NewApp builds new commands for each command line, because urfave's commands remember parsed values.
func NewApp(p *Process, compat bool, groups []Group) *App {
	app := &App{groups: groups, args: map[string]Args{}, parts: newParts(p, compat)}
	app.App = &urfave.App{
		Name:                      "crishim",
		HelpName:                  "crishim",
		Usage:                     "Debug containers and pods through CRI, with or without a CRI runtime",
		UsageText:                 "[global options] COMMAND [options] [arguments]",
		Flags:                     append(app.globalFlags(), helpFlag()),
		Before:                    app.readGlobals,
		Writer:                    p.Out,
		ErrWriter:                 p.Err,
		Reader:                    p.In,
		HideVersion:               true,
		HideHelp:                  true,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*urfave.Context, error) {},
	}
	app.OnUsageError = func(_ *urfave.Context, err error, _ bool) error {
		return argv.AddUsage("crishim "+app.UsageText, flagComplaint(app.Flags, err))
	}
	return app
}

// WithAllVerbs builds every verb, for the pages that describe them.
func (app *App) WithAllVerbs() *App {
	for _, group := range app.groups {
		for _, e := range group.Verbs {
			app.verb(e.Names[0])
		}
	}
	return app
}

// verb returns the command of a verb, which it builds if necessary, or nil if there is no verb of that name.
func (app *App) verb(name string) *urfave.Command {
	if c := app.Command(name); c != nil {
		return c
	}
	for _, group := range app.groups {
		for _, e := range group.Verbs {
			if slices.Contains(e.Names, name) {
				v := e.Build(app.in)
				app.args[e.Names[0]] = v.Args
				app.Commands = append(app.Commands, app.command(e.Names, v, "crishim ", group.Title))
				return app.Command(name)
			}
		}
	}
	return nil
}

func (app *App) command(names []string, v *Verb, parent, category string) *urfave.Command {
	usage := parent + names[0] + " [options] " + v.ArgsUsage
	c := &urfave.Command{
		Name: names[0], Aliases: names[1:], Usage: v.Usage, ArgsUsage: v.ArgsUsage, Description: v.Description,
		Category: category, Flags: append(v.Flags, helpFlag()), HideHelp: true,
	}
	c.OnUsageError = func(_ *urfave.Context, err error, _ bool) error {
		return argv.AddUsage(usage, flagComplaint(c.Flags, err))
	}
	c.Action = func(ctx *urfave.Context) error { return argv.AddUsage(usage, app.act(ctx, v)) }
	for _, sub := range v.Subcommands {
		c.Subcommands = append(c.Subcommands, app.command(sub.Names, sub.Build(app.in), parent+names[0]+" ", ""))
	}
	return c
}

// act checks the arguments of a verb and runs the verb, on all nodes if there are several.
func (app *App) act(c *urfave.Context, v *Verb) error {
	if err := v.Check(app.in, c); err != nil {
		return err
	}
	app.connector.images = v.Images
	if v.GC > 0 {
		gogc.Set(v.GC)
	}
	switch {
	case app.in.several:
		return app.nodes.run(c.Context, app.printer, app.connector, v.run)
	case app.in.Cluster != nil:
		return app.connector.withinOne(c.Context, func(ctx context.Context) error { return v.run(ctx, app.printer, app.connector) })
	}
	return v.run(c.Context, app.printer, app.connector)
}

// helpFlag returns a new --help flag for each command. urfave's own flag is a package variable, so two command lines in
// one process would race on it.
func helpFlag() urfave.Flag { return BoolFlag(new(bool), "help", "Show help", "h") }

// Table returns the flags and verbs of the program for argv.
func (app *App) Table() *argv.Program {
	p := &argv.Program{Flags: tableOf(app.Flags), Verb: func(name string) *argv.Command { return tableOfCommand(app.verb(name)) }}
	for _, group := range app.groups {
		for _, e := range group.Verbs {
			p.Names = append(p.Names, e.Names...)
		}
	}
	return p
}

func tableOfCommand(c *urfave.Command) *argv.Command {
	if c == nil {
		return nil
	}
	table := &argv.Command{Names: c.Names(), ArgsUsage: c.ArgsUsage, Flags: tableOf(c.Flags)}
	for _, sub := range c.Subcommands {
		table.Commands = append(table.Commands, tableOfCommand(sub))
	}
	return table
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
