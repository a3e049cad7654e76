package commands

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newRuntimeConfig shows what a kubelet takes over from the runtime.
func newRuntimeConfig(env *Env) *cli.Command {
	v := &view{}
	return &cli.Command{
		Name:        "runtime-config",
		Usage:       "show the runtime's cgroup driver",
		Description: describe("What a kubelet asks the runtime before it starts.", "crishim runtime-config"),
		Flags:       v.flags(),
		Action: env.connected(v.checkAlone, func(ctx context.Context, env *Env, conn *client.Conn) error {
			res, err := conn.Runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
			if err != nil {
				return err
			}
			return output.RuntimeConfig(env.Out, res, v.Options)
		}),
	}
}

// newUpdateRuntimeConfig tells the runtime the node's pod addresses.
func newUpdateRuntimeConfig(env *Env) *cli.Command {
	cidr := ""
	return &cli.Command{
		Name:        "update-runtime-config",
		Usage:       "tell the runtime which addresses pods get",
		Description: describe("Sends the pod CIDR, as a kubelet does when its node gets one.", "crishim update-runtime-config --pod-cidr 10.244.3.0/24"),
		Flags:       []cli.Flag{cidrFlag(&cidr, "pod-cidr", "`CIDR`, or two of them separated by a comma for dual stack", "p")},
		Action: env.connected(func(_ *Env, c *cli.Context) error {
			if cidr == "" && !c.Args().Present() {
				return &usageError{text: c.Command.Name + " needs --pod-cidr", noArguments: true}
			}
			return argCount(c, 0, 0)
		}, func(ctx context.Context, env *Env, conn *client.Conn) error {
			_, err := conn.Runtime.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{
				RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr}},
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(env.Err, "Runtime config updated")
			return err
		}),
	}
}
