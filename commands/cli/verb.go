package cli

import (
	"context"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
)

// Entry is a row of the table of verbs. Build runs only for a verb that is called, completed or listed with its usage.
type Entry struct {
	Names []string // the name and its aliases
	Build func(*Invocation) *Verb
}

// Verb declares a command of the program.
type Verb struct {
	Usage       string
	ArgsUsage   string
	Args        Args // completes the arguments; nil for a verb without arguments
	Description string
	Subcommands []Entry
	Flags       []urfave.Flag
	Images      bool // dials the image endpoint, and the runtime endpoint only if needed
	GC          int  // GOGC of a verb that runs long; 0 for the value of short commands
	// Check reads the arguments and reports wrong usage, before anything is dialled.
	Check func(*Invocation, *urfave.Context) error
	// Run does the work. RunOn does the work on a connection to the runtime, or to each of several runtimes.
	Run   func(context.Context, *Printer, *Connector) error
	RunOn func(context.Context, *Printer, *client.Conn) error
}

// Group is a section of the help page with its verbs.
type Group struct {
	Title string
	Verbs []Entry
}

// run calls Run, or connects and calls RunOn.
func (v *Verb) run(ctx context.Context, p *Printer, c *Connector) error {
	if v.Run != nil {
		return v.Run(ctx, p, c)
	}
	conn, err := c.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return v.RunOn(ctx, p, conn)
}
