package commands

import (
	"context"
	"embed"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

//go:embed completions
var completionScripts embed.FS

func shells() []string { return []string{"bash", "zsh", "fish"} }

// newCompletion prints what makes a shell ask crishim for completions.
func newCompletion(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print the completion script of a shell",
		ArgsUsage: "[bash|zsh|fish]",
		Description: describe("The script completes commands, flags and values, and the names of containers, pods and images that are there.",
			`eval "$(crishim completion bash)"`, "crishim completion zsh", "crishim completion fish"),
		Action: action(env, shellOf, runCompletion),
	}
}

func shellOf(_ *Env, c *cli.Context) (string, error) {
	if err := argCount(c, 0, 1); err != nil {
		return "", err
	}
	shell := c.Args().First()
	if shell == "" {
		shell = "bash"
	}
	if !slices.Contains(shells(), shell) {
		return "", usagef("there is no completion for %s: want bash, zsh or fish", quote(shell))
	}
	return shell, nil
}

func runCompletion(_ context.Context, env *Env, shell string) error {
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
}
