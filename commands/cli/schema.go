package cli

import (
	"context"

	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/commands/cli/crifile"
	"github.com/crishim/crishim/output"
	urfave "github.com/urfave/cli/v2"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// NewSchema returns the verb that prints the JSON schema of a configuration. For "container" the verb has crictl's
// flags that choose the configuration.
func NewSchema(verb, kind string) Entry {
	var pod, container bool
	c := &Verb{
		Usage:       "Print the JSON schema of the configuration",
		Description: WithExamples("Prints the JSON schema with which editors check a configuration file.", "crishim "+verb+" jsonschema"),
		Check: func(in *Invocation, c *urfave.Context) error {
			pod = pod || kind == "pod"
			if !pod && !container {
				if in.Compat {
					return &UsageError{Text: "jsonschema needs --pod-config or --container-config", Kind: argv.NoArguments}
				}
				container = true
			}
			return ArgCount(c, 0, 0)
		},
		Run: func(_ context.Context, p *Printer, _ *Connector) error {
			var all []protoreflect.ProtoMessage
			if pod {
				all = append(all, &runtimeapi.PodSandboxConfig{})
			}
			if container {
				all = append(all, &runtimeapi.ContainerConfig{})
			}
			for _, m := range all {
				if err := output.Value(p.Out, crifile.Schema(m.ProtoReflect().Descriptor()), output.Options{}, nil); err != nil {
					return err
				}
			}
			return nil
		},
	}
	if kind == "container" {
		c.Flags = []urfave.Flag{
			BoolFlag(&pod, "pod-config", "Print the schema of the pod configuration", "p", "pod"),
			BoolFlag(&container, "container-config", "Print the schema of the container configuration (default)", "c", "container"),
		}
	}
	return Entry{Names: []string{"jsonschema", "js"}, Build: func(*Invocation) *Verb { return c }}
}
