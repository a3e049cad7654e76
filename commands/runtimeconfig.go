package commands

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/output"
)

// newRuntimeConfig shows what a kubelet takes over from the runtime.
func newRuntimeConfig(env *Env) *cli.Command {
	return &cli.Command{
		Name:        "runtime-config",
		Usage:       "show the runtime's cgroup driver",
		Description: describe("What a kubelet asks the runtime before it starts.", "crishim runtime-config"),
		Flags:       formatFlags(),
		Action:      action(env, versionOptions, runRuntimeConfig),
	}
}

func runRuntimeConfig(ctx context.Context, env *Env, o output.Options) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	res, err := conn.Runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if err != nil {
		return err
	}
	return output.RuntimeConfig(env.Out, res, o)
}

// newUpdateRuntimeConfig tells the runtime the node's pod addresses.
func newUpdateRuntimeConfig(env *Env) *cli.Command {
	return &cli.Command{
		Name:        "update-runtime-config",
		Usage:       "tell the runtime which addresses pods get",
		Description: describe("Sends the pod CIDR, as a kubelet does when its node gets one.", "crishim update-runtime-config --pod-cidr 10.244.3.0/24"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "pod-cidr", Aliases: []string{"p"}, Usage: "`CIDR`, or two of them separated by a comma for dual stack"},
		},
		Action: action(env, podCIDROf, runUpdateRuntimeConfig),
	}
}

func podCIDROf(_ *Env, c *cli.Context) (string, error) {
	if err := noArgs(c); err != nil {
		return "", err
	}
	if c.String("pod-cidr") == "" {
		return "", &usageError{text: c.Command.Name + " needs --pod-cidr", noArguments: true}
	}
	return readCIDRs(c, "pod-cidr")
}

func runUpdateRuntimeConfig(ctx context.Context, env *Env, cidr string) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Runtime.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr}},
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Err, "Runtime config updated")
	return err
}
