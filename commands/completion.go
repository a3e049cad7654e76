package commands

import (
	"cmp"
	"context"
	"embed"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

//go:embed completions
var completionScripts embed.FS

// newCompletion prints what makes a shell ask crishim for completions.
func newCompletion(env *Env) *cli.Command {
	shell := ""
	return &cli.Command{
		Name:      "completion",
		Usage:     "print the completion script of a shell",
		ArgsUsage: "[bash|zsh|fish]",
		Description: describe("The script completes commands, flags and values, and the names of containers, pods and images that are there.",
			`eval "$(crishim completion bash)"`, "crishim completion zsh", "crishim completion fish"),
		Action: env.offline(func(_ *Env, c *cli.Context) error {
			shell = cmp.Or(c.Args().First(), "bash")
			if !slices.Contains(shells(), shell) {
				return usagef("there is no completion for %s: must be bash, zsh or fish", quote(shell))
			}
			return argCount(c, 0, 1)
		}, func(_ context.Context, env *Env) error {
			script, err := completionScripts.ReadFile("completions/crishim." + shell)
			if err != nil {
				return err
			}
			name := "crishim"
			if env.compat {
				name = "crictl"
			}
			_, err = io.WriteString(env.Out, strings.ReplaceAll(string(script), "NAME", name))
			return err
		}),
	}
}

func shells() []string { return []string{"bash", "zsh", "fish"} }
