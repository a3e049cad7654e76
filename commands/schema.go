package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/crifile"
	"github.com/crishim/crishim/output"
)

// newSchema prints the JSON schema of a configuration file. One kind has no
// flags to choose between; "container" offers both, as crictl does.
func newSchema(env *Env, verb, kind string) *cli.Command {
	c := &cli.Command{
		Name:        "jsonschema",
		Aliases:     []string{"js"},
		Usage:       "print the JSON schema of the configuration",
		Description: describe("The schema that editors check such a file with.", "crishim "+verb+" jsonschema"),
	}
	if kind == "container" {
		c.Flags = []cli.Flag{
			&cli.BoolFlag{Name: "pod-config", Aliases: []string{"p"}, Usage: "the pod's configuration"},
			&cli.BoolFlag{Name: "container-config", Aliases: []string{"c"}, Usage: "the container's configuration (default)"},
		}
	}
	c.Action = action(env, func(_ *Env, c *cli.Context) (protoreflect.MessageDescriptor, error) {
		if c.Bool("pod-config") && c.Bool("container-config") {
			return nil, usagef("--pod-config and --container-config: choose one")
		}
		if kind == "pod" || c.Bool("pod-config") {
			return (&runtimeapi.PodSandboxConfig{}).ProtoReflect().Descriptor(), noArgs(c)
		}
		return (&runtimeapi.ContainerConfig{}).ProtoReflect().Descriptor(), noArgs(c)
	}, func(_ context.Context, env *Env, m protoreflect.MessageDescriptor) error {
		return output.Value(env.Out, crifile.Schema(m), output.Options{}, nil)
	})
	return c
}
