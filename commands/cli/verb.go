package cli

import (
	"context"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
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
	Images      bool // it is about images: it dials the image endpoint, and the runtime's only if that is needed, too
	// Check reads the arguments and reports wrong usage, before anything is dialled.
	Check func(*Invocation, *urfave.Context) error
	// Run does the work. RunOn does it instead on a connection to the runtime, or to each of several.
	Run   func(context.Context, *Printer, *Connector) error
	RunOn func(context.Context, *Printer, *client.Conn) error
}

// Group is a section of the help page with the constructors of its verbs.
type Group struct {
	Title string
	Verbs []func(*Invocation) *Verb
}

// run connects for RunOn.
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
