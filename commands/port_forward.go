package commands

import (
	"context"
	"net"

	"github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
)

// newPortForward carries local connections into a pod until a signal.
func newPortForward(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "port-forward",
		Usage:     "forward local ports to a pod",
		ArgsUsage: "POD [[ADDRESS:]LOCAL:]REMOTE...",
		Description: describe("The pod by name, namespace/name or id. PORT alone is the same port on both sides; :REMOTE takes a free local one.\n"+
			"Local ports are bound on 127.0.0.1 and ::1 unless --address or ADDRESS says otherwise. It runs until it is\n"+
			"interrupted, or the pod ends.",
			"crishim port-forward web 8080:80", "crishim port-forward web :80", "crishim port-forward --address 0.0.0.0 web 8080:80 9090"),
		Flags: append([]cli.Flag{
			&cli.StringSliceFlag{Name: "address", Usage: "bind local ports on `ADDRESS`; may be repeated"},
		}, transportFlags()...),
		Action: action(env, portForwardOptionsOf, runPortForward),
	}
}

type portForwardOptions struct {
	pod    string
	ports  []stream.Port
	stream stream.Options
}

func portForwardOptionsOf(env *Env, c *cli.Context) (o portForwardOptions, err error) {
	if err = argCount(c, 2, -1); err != nil {
		return o, err
	}
	o.pod = c.Args().First()
	for _, text := range c.Args().Tail() {
		p, err := stream.ParsePort(text)
		if err != nil {
			return o, usagef("%v", err)
		}
		o.ports = append(o.ports, p)
	}
	if o.stream, err = readTransport(env, c); err != nil {
		return o, err
	}
	o.stream.Addresses = c.StringSlice("address")
	return o, nil
}

func (o portForwardOptions) request(id string) *runtimeapi.PortForwardRequest {
	r := &runtimeapi.PortForwardRequest{PodSandboxId: id}
	for _, p := range o.ports {
		r.Port = append(r.Port, int32(p.Remote))
	}
	return r
}

func runPortForward(ctx context.Context, env *Env, o portForwardOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	pod, err := conn.Pod(ctx, o.pod, client.Running)
	if err != nil {
		return err
	}
	o.stream.Ready = func(local net.Addr, remote uint16) {
		_ = env.say("Forwarding from %s -> %d", local, remote) // the forwarding works without its reader
	}
	o.stream.Failed = func(p stream.Port, err error) {
		env.warn("connection to port %d of %s: %s", p.Remote, pod.GetMetadata().GetName(), sentence(env, err))
	}
	o.stream.Alive = func(ctx context.Context) (bool, error) { return podRuns(ctx, conn, pod.GetId()) }
	err = stream.Forward(ctx, func(ctx context.Context) (string, error) {
		res, err := conn.Runtime.PortForward(ctx, o.request(pod.GetId()))
		return res.GetUrl(), err
	}, o.ports, o.stream)
	if ctx.Err() != nil {
		return errFollowed
	}
	return err
}

// podRuns asks whether a pod is still there and ready.
func podRuns(ctx context.Context, conn *client.Conn, id string) (bool, error) {
	res, err := conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if status.Code(err) == codes.NotFound {
		return false, nil
	}
	return res.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY, err
}
