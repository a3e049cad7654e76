// Package commands is crishim's command line. The verbs are in folders by noun, one file
// each from flags to options to a request to the output; app.go has the table of them. What
// they share is in cli.
package commands

import (
	"context"

	"github.com/crishim/crishim/commands/cli"
)

// Main is the whole program: it runs one command line, args[0] being the program's name,
// and returns the status to exit with (docs/exit-codes.md).
func Main(ctx context.Context, args []string, env *cli.Env) int {
	return cli.Run(ctx, args, env, newApp)
}
