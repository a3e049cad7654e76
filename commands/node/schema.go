package node

import (
	"context"
	"maps"
	"reflect"
	"slices"

	urfave "github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/diagnose"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/output"
)

// NewSchema returns the verb that prints the JSON schema of what a verb prints, so that scripts and generators of
// code need not guess it.
func NewSchema(env *cli.Env) *urfave.Command {
	verb := ""
	types := map[string]reflect.Type{"describe": reflect.TypeFor[kuberuntime.Description](), "why": reflect.TypeFor[diagnose.Report](), "apply": reflect.TypeFor[v1.Pod]()}
	known := slices.Sorted(slices.Values(slices.Concat(output.SchemaVerbs(), slices.Collect(maps.Keys(types)))))
	return &urfave.Command{
		Name:      "schema",
		Usage:     "print the JSON schema of the output of a command",
		ArgsUsage: "[COMMAND]",
		Description: cli.WithExamples("The schema of COMMAND -o json; each line of -o jsonl is an item of its list. Without COMMAND, lists the commands that have one.",
			"crishim schema", "crishim schema ps"),
		Action: env.Offline(func(_ *cli.Env, c *urfave.Context) error {
			verb = c.Args().First()
			if c.NArg() > 0 && !slices.Contains(known, verb) {
				return cli.Usagef("there is no schema of %s: %v", cli.Quote(verb), cli.MustBe(known...))
			}
			return cli.ArgCount(c, 0, 1)
		}, func(_ context.Context, env *cli.Env) error {
			if verb == "" {
				return cli.Each(known, func(verb string) error { return env.Say("%s", verb) })
			}
			schema := output.Schema
			if t := types[verb]; t != nil {
				schema = func(verb string) map[string]any { return output.ValueSchema(verb, t) }
			}
			return output.Value(env.Out, schema(verb), output.Options{}, nil)
		}),
	}
}
