package commands

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/output"
)

// newVersion shows which runtime answers, the first thing to know about a node.
func newVersion(env *Env) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "show the runtime's name and version",
		Description: describe("Asks the runtime who it is and which CRI version it speaks. crishim's own version is crishim --version.",
			"crishim version", "crishim version -o json"),
		Flags:  formatFlags(),
		Action: action(env, versionOptions, runVersion),
	}
}

func versionOptions(env *Env, c *cli.Context) (output.Options, error) {
	if err := noArgs(c); err != nil {
		return output.Options{}, err
	}
	return readFormat(env, c)
}

func runVersion(ctx context.Context, env *Env, o output.Options) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	res, err := conn.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return err
	}
	return output.Version(env.Out, res, o)
}

// ownVersion is the linker's version, else the module's.
func ownVersion(env *Env) string {
	if env.Version != "" {
		return env.Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func printOwnVersion(env *Env) error {
	_, err := fmt.Fprintf(env.Out, "crishim version %s %s/%s\n", ownVersion(env), runtime.GOOS, runtime.GOARCH)
	return err
}
