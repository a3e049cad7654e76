package commands

import (
	"cmp"
	"context"
	"net"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
)

type portForwardOptions struct {
	pod     string
	ports   []stream.Port
	session session
}

// newPortForward carries local connections into a pod until a signal.
func newPortForward(env *Env) *cli.Command {
	o := &portForwardOptions{}
	return &cli.Command{
		Name:      "port-forward",
		Usage:     "forward local ports to a pod",
		ArgsUsage: "POD [[ADDRESS:]LOCAL:]REMOTE...",
		Description: describe("The pod by name, namespace/name or id. PORT alone is the same port on both sides; :REMOTE takes a free local one.\n"+
			"Local ports are bound on 127.0.0.1 and ::1 unless --address or ADDRESS says otherwise. It runs until it is\n"+
			"interrupted, or the pod ends.",
			"crishim port-forward web 8080:80", "crishim port-forward web :80", "crishim port-forward --address 0.0.0.0 web 8080:80 9090"),
		Flags: append(o.session.transportFlags(),
			stringsFlag(&o.session.options.Addresses, "address", "bind local ports on `ADDRESS`; may be repeated")),
		Action: env.connected(o.check, o.run),
	}
}

func (o *portForwardOptions) check(env *Env, c *cli.Context) error {
	o.pod = c.Args().First()
	for _, text := range c.Args().Tail() {
		p, err := stream.ParsePort(text)
		if err != nil {
			return usagef("%v", err)
		}
		o.ports = append(o.ports, p)
	}
	return cmp.Or(argCount(c, 2, -1), o.session.check(env))
}

func (o *portForwardOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	pod, err := conn.Pod(ctx, o.pod, client.Running)
	if err != nil {
		return err
	}
	options := o.session.options
	options.Ready = func(local net.Addr, remote uint16) {
		_ = env.say("Forwarding from %s -> %d", local, remote) // the forwarding works without its reader
	}
	options.Failed = func(p stream.Port, err error) {
		env.warn("connection to port %d of %s: %s", p.Remote, pod.GetMetadata().GetName(), sentence(env, err))
	}
	options.Alive = func(ctx context.Context) (bool, error) {
		res, err := conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod.GetId()})
		return res.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && err == nil, unlessGone(err)
	}
	request := &runtimeapi.PortForwardRequest{PodSandboxId: pod.GetId()}
	for _, p := range o.ports {
		request.Port = append(request.Port, int32(p.Remote))
	}
	err = stream.Forward(ctx, func(ctx context.Context) (string, error) {
		res, err := conn.Runtime.PortForward(ctx, request)
		return res.GetUrl(), err
	}, o.ports, options)
	if ctx.Err() != nil {
		return errFollowed
	}
	return err
}
