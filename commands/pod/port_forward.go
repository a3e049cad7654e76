package pod

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/lazyregexp"
)

type portForwardOptions struct {
	pod     string
	in      cli.Scope
	ports   []string
	session cli.SessionOptions
}

func NewPortForward(in *cli.Invocation) *cli.Verb {
	o := &portForwardOptions{}
	return &cli.Verb{
		Usage:     "Forward local ports to a pod",
		ArgsUsage: "POD [[ADDRESS:]LOCAL:]REMOTE...",
		Args:      cli.First(cli.CompletePods, nil),
		Description: cli.WithExamples("Forwards local ports to a pod, given by name, namespace/name or ID. REMOTE alone is the same port on both sides; :REMOTE takes a free\n"+
			"local port. REMOTE may be the name of a port in the pod's manifest.\n"+
			"Listens on 127.0.0.1 and ::1, or on --address or ADDRESS. Runs until it is interrupted or the pod ends.",
			"crishim port-forward web 8080:80", "crishim port-forward web :80", "crishim port-forward pod/web 8080:http", "crishim port-forward --address 0.0.0.0 web 8080:80 9090"),
		Flags: append(o.session.TransportFlags(), o.in.NamespaceFlag(),
			cli.StringsFlag(&o.session.Options.Addresses, "address", "Listen on `ADDRESS` (default 127.0.0.1 and ::1)")),
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *portForwardOptions) check(in *cli.Invocation, c *urfave.Context) error {
	o.pod, o.ports = c.Args().First(), c.Args().Tail()
	for _, text := range o.ports {
		if number, protocol, found := strings.Cut(text, "/"); found && strings.EqualFold(protocol, "udp") {
			return cli.Usagef("port %s is for UDP: only TCP is forwarded", number)
		}
		if local, name := namedPort(text); name != "" {
			text = local + "1"
		}
		if _, err := stream.ParsePort(text); err != nil {
			return cli.Usagef("%v", err)
		}
	}
	return cmp.Or(cli.ArgCount(c, 2, -1), o.session.Check(in))
}

func (o *portForwardOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	pod, err := conn.PodOf(ctx, o.in.Query(o.pod, client.RunningAttempt))
	if err != nil {
		return err
	}
	ports, err := o.numbers(ctx, conn, pod)
	if err != nil {
		return err
	}
	options := o.session.Options
	options.Dial = conn.DialThere
	options.Ready = func(local net.Addr, remote uint16) {
		_ = printer.Say("Forwarding from %s -> %d", local, remote) // best effort
	}
	options.Accepted = func(local net.Addr) {
		if tcp, ok := local.(*net.TCPAddr); ok {
			_ = printer.Say("Handling connection for %d", tcp.Port) // best effort
		}
	}
	options.Failed = func(p stream.Port, err error) {
		printer.Warn("connection to port %d of %s: %w", p.Remote, pod.GetMetadata().GetName(), err)
	}
	options.Alive = func(ctx context.Context) (bool, error) {
		res, err := conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod.GetId()})
		return res.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && err == nil, cli.UnlessGone(err)
	}
	request := &runtimeapi.PortForwardRequest{PodSandboxId: pod.GetId()}
	for _, p := range ports {
		request.Port = append(request.Port, int32(p.Remote))
	}
	err = stream.Forward(ctx, func(ctx context.Context) (string, error) {
		res, err := conn.Runtime.PortForward(ctx, request)
		return res.GetUrl(), err
	}, ports, options)
	if ctx.Err() != nil {
		return cli.ErrFollowed
	}
	if taken := (*stream.PortTakenError)(nil); errors.As(err, &taken) {
		err = cli.WithHint(err, "`crishim who :%d` shows who has it here, `:%d` takes a free port", taken.Port.Local, taken.Port.Remote)
	}
	return err
}

// portName matches the names that Kubernetes allows for a port.
var portName = lazyregexp.New(`^[a-z0-9-]*[a-z][a-z0-9-]*$`)

// namedPort splits [[ADDRESS:]LOCAL:]NAME before the name of a port. The name is empty for a number.
func namedPort(text string) (before, name string) {
	at := strings.LastIndexByte(text, ':') + 1
	if !portName.MatchString(text[at:]) {
		return "", ""
	}
	return text[:at], text[at:]
}

// numbers returns the ports, with numbers in place of names.
func (o *portForwardOptions) numbers(ctx context.Context, conn *client.Conn, pod *runtimeapi.PodSandbox) (ports []stream.Port, err error) {
	known, unknown := portsOf(ctx, conn, pod.GetId())
	for _, text := range o.ports {
		if local, name := namedPort(text); name != "" {
			if unknown != nil {
				return nil, unknown
			}
			i := slices.IndexFunc(known, func(p containerPort) bool { return p.Name == name })
			if i < 0 {
				return nil, noPortNamed(pod, name, known)
			}
			text = local + strconv.Itoa(int(known[i].ContainerPort))
		}
		p, err := stream.ParsePort(text)
		if err != nil {
			return nil, err
		}
		protocols := map[string]bool{}
		for _, other := range known {
			if other.ContainerPort == p.Remote {
				protocols[cmp.Or(other.Protocol, "TCP")] = true
			}
		}
		if len(protocols) > 0 && !protocols["TCP"] {
			return nil, fmt.Errorf("port %d of pod %s is for %s: only TCP is forwarded", p.Remote, cli.PodPath(pod.GetMetadata()), strings.Join(slices.Sorted(maps.Keys(protocols)), " and "))
		}
		ports = append(ports, p)
	}
	return ports, nil
}

type containerPort struct {
	Name          string `json:"name"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"`
}

// portsOf returns the ports in the annotations of kubelets and crishim.
func portsOf(ctx context.Context, conn *client.Conn, pod string) (known []containerPort, err error) {
	res, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: pod}})
	if err != nil {
		return nil, err
	}
	for _, c := range res.GetContainers() {
		var list []containerPort
		text := c.GetAnnotations()[kube.AnnotationPorts]
		// Some runtimes ignore the filter. A container without ports has no annotation, and an annotation that is not
		// valid is from another tool.
		if c.GetPodSandboxId() != pod || json.Unmarshal([]byte(text), &list) != nil {
			continue
		}
		known = append(known, slices.DeleteFunc(list, func(p containerPort) bool { return p.ContainerPort == 0 })...)
	}
	return known, nil
}

func noPortNamed(pod *runtimeapi.PodSandbox, name string, known []containerPort) error {
	var names []string
	for _, p := range known {
		if p.Name != "" {
			names = append(names, fmt.Sprintf("%s (%d)", p.Name, p.ContainerPort))
		}
	}
	slices.Sort(names)
	err := fmt.Errorf("pod %s has no port named %s", cli.PodPath(pod.GetMetadata()), cli.Quote(name))
	if len(names) == 0 {
		return cli.WithHint(err, "no names of its ports are known: give a number")
	}
	return cli.WithHint(err, "its ports are %s", strings.Join(names, ", "))
}
