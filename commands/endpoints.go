package commands

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newEndpoints shows where a runtime was looked for and which one is taken.
func newEndpoints(env *Env) *cli.Command {
	return &cli.Command{
		Name:  "endpoints",
		Usage: "show which runtime is used, and why",
		Description: describe("Looks at every place where a CRI runtime or a Docker engine may be, says what is there, and marks the one that other commands use.",
			"crishim endpoints", "crishim endpoints -o json"),
		Flags:  listFlags(output.EndpointColumns),
		Action: action(env, listOptions(output.EndpointColumns), runEndpoints),
	}
}

func runEndpoints(ctx context.Context, env *Env, o output.Options) error {
	options, err := env.clientOptions()
	if err != nil {
		return err
	}
	attempts, failed := client.Probe(ctx, options)
	if failed != nil && len(attempts) == 0 {
		return failed
	}
	var rows []output.Endpoint
	for _, a := range attempts {
		rows = append(rows, output.Endpoint{Endpoint: a.Endpoint, Kind: kindAndName(a), State: a.State, Detail: a.Detail, Chosen: a.Chosen})
	}
	return join(output.Endpoints(env.Out, rows, o), failed)
}

func kindAndName(a client.Attempt) string {
	if a.Name != "" {
		return a.Name
	}
	return a.Kind
}
