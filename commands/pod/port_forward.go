package pod

import (
	"cmp"
	"context"
	"net"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
)

type portForwardOptions struct {
	pod     string
	ports   []stream.Port
	session cli.Session
}

func NewPortForward(env *cli.Env) *urfave.Command {
	o := &portForwardOptions{}
	return &urfave.Command{
		Name:      "port-forward",
		Usage:     "forward local ports to a pod",
		ArgsUsage: "POD [[ADDRESS:]LOCAL:]REMOTE...",
		Description: cli.WithExamples("The pod by name, namespace/name or id. PORT alone is the same port on both sides; :REMOTE takes a free local one.\n"+
			"Local ports are bound on 127.0.0.1 and ::1, or on --address or ADDRESS. Runs until it is interrupted or the pod ends.",
			"crishim port-forward web 8080:80", "crishim port-forward web :80", "crishim port-forward --address 0.0.0.0 web 8080:80 9090"),
		Flags: append(o.session.TransportFlags(),
			cli.StringsFlag(&o.session.Options.Addresses, "address", "`ADDRESS` to listen on (default: 127.0.0.1 and ::1); may be repeated")),
		Action: env.Connected(o.check, o.run),
	}
}

func (o *portForwardOptions) check(env *cli.Env, c *urfave.Context) error {
	o.pod = c.Args().First()
	for _, text := range c.Args().Tail() {
		p, err := stream.ParsePort(text)
		if err != nil {
			return cli.Usagef("%v", err)
		}
		o.ports = append(o.ports, p)
	}
	return cmp.Or(cli.ArgCount(c, 2, -1), o.session.Check(env))
}

func (o *portForwardOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	pod, err := conn.Pod(ctx, o.pod, client.Running)
	if err != nil {
		return err
	}
	options := o.session.Options
	options.Ready = func(local net.Addr, remote uint16) {
		_ = env.Say("Forwarding from %s -> %d", local, remote) // best effort
	}
	options.Accepted = func(local net.Addr) {
		if tcp, ok := local.(*net.TCPAddr); ok {
			_ = env.Say("Handling connection for %d", tcp.Port) // best effort
		}
	}
	options.Failed = func(p stream.Port, err error) {
		env.Warn("connection to port %d of %s: %s", p.Remote, pod.GetMetadata().GetName(), cli.Sentence(env, err))
	}
	options.Alive = func(ctx context.Context) (bool, error) {
		res, err := conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod.GetId()})
		return res.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && err == nil, cli.UnlessGone(err)
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
		return cli.ErrFollowed
	}
	return err
}
