package node

import (
	"cmp"
	"context"
	"embed"
	"io"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli"
)

//go:embed completions
var completionScripts embed.FS

// NewCompletion returns the verb that prints a shell's completion script.
func NewCompletion(in *cli.Invocation) *cli.Verb {
	shell := ""
	return &cli.Verb{
		Usage:     "Print the completion script of a shell",
		ArgsUsage: "[bash|zsh|fish]",
		Args:      cli.First(cli.CompleteWords("bash", "zsh", "fish"), nil),
		Description: cli.WithExamples("Prints a script that completes commands, flags and values, and the names of existing containers, pods and images.",
			`eval "$(crishim completion bash)"`, "crishim completion zsh", "crishim completion fish"),
		Check: func(_ *cli.Invocation, c *urfave.Context) error {
			shell = cmp.Or(c.Args().First(), "bash")
			if !slices.Contains([]string{"bash", "zsh", "fish"}, shell) {
				return cli.Usagef("there is no completion for %s: must be bash, zsh or fish", cli.Quote(shell))
			}
			return cli.ArgCount(c, 0, 1)
		},
		Run: func(_ context.Context, printer *cli.Printer, _ *cli.Connector) error {
			script, err := completionScripts.ReadFile("completions/crishim." + shell)
			if err != nil {
				return err
			}
			name := "crishim"
			if printer.Compat {
				name = "crictl"
			}
			_, err = io.WriteString(printer.Out, strings.ReplaceAll(string(script), "NAME", name))
			return err
		},
	}
}
