package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/hostproc"
	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/internal/proctree"
	"github.com/crishim/crishim/output"
)

type whoOptions struct {
	cli.View
	targets []whoTarget
}

// NewWho returns the verb that finds the pod of a process or of a port of this machine.
func NewWho(in *cli.Invocation) *cli.Verb {
	o := &whoOptions{}
	return &cli.Verb{
		Usage:     "Show which pod a process or port of this node belongs to",
		ArgsUsage: "PID|PORT...",
		Args:      cli.CompleteNothing,
		Description: cli.WithExamples("A number is a process ID or, if no process has it, a port; :8080 and 8080/udp are ports. who looks for ports in every network namespace\n"+
			"and among the ports forwarded to pods. A process outside of containers is shown with its systemd unit.\n"+
			"`crishim ps -o wide` shows the processes of containers. `fuser -v PATH` shows the processes that use a file.",
			"crishim who 1", "crishim who :8080 53/udp", "crishim who -o json 1"),
		Flags: o.ListFlags(output.OwnerColumns, "IDs or units"),
		Check: o.check,
		Run:   o.run,
	}
}

// whoTarget is one argument.
type whoTarget struct {
	text     string
	pid      int    // 0: not a process
	port     uint16 // 0: not a port
	protocol string // tcp or udp; "" for both
}

var portText = lazyregexp.New(`^(?::(\d+)(?:/(\w+))?|(\d+)/(\w+))$`)

func parseWho(text string) (t whoTarget, err error) {
	t.text = text
	if n, err := strconv.ParseUint(text, 10, 31); err == nil && n > 0 {
		t.pid = int(n)
		if n <= 65535 {
			t.port = uint16(n)
		}
		return t, nil
	}
	if m := portText.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseUint(m[1]+m[3], 10, 16)
		if err != nil || n == 0 {
			return t, cli.Usagef("invalid port %s: must be from 1 to 65535", cli.Quote(text))
		}
		t.port, t.protocol = uint16(n), m[2]+m[4]
		if !slices.Contains([]string{"", "tcp", "udp"}, t.protocol) {
			return t, cli.Usagef("invalid port %s: the protocol must be tcp or udp", cli.Quote(text))
		}
		return t, nil
	}
	wrong := &cli.UsageError{Text: fmt.Sprintf("invalid argument %s: must be a pid, or a port such as :8080 or 53/udp", cli.Quote(text))}
	if strings.Contains(text, "/") {
		wrong.Next = "`fuser -v PATH` or `lsof PATH` shows the processes that use a file, `crishim who PID` their pods"
	}
	return t, wrong
}

func (o *whoOptions) check(in *cli.Invocation, c *urfave.Context) error {
	if err := cli.ArgCount(c, 1, -1); err != nil {
		return err
	}
	for _, text := range c.Args().Slice() {
		t, err := parseWho(text)
		if err != nil {
			return err
		}
		o.targets = append(o.targets, t)
	}
	return o.Check(in)
}

func (o *whoOptions) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	s := &search{printer: printer, connector: connector}
	defer s.close()
	var owners []output.Owner
	var failed []error
	for _, t := range o.targets {
		found, err := s.find(ctx, t)
		for i := range found {
			found[i].Target = t.text
		}
		owners = append(owners, found...)
		if err != nil {
			for _, one := range cli.Failures(err) {
				failed = append(failed, cli.About(t.text, one))
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if s.unnamed {
		failed = append(failed, s.failed)
	}
	if len(owners) == 0 {
		return cli.Join(failed...)
	}
	return cli.Join(append([]error{output.Owners(printer.Out, owners, o.Options)}, failed...)...)
}

// search finds owners, and caches answers of the runtime and the kernel.
type search struct {
	printer   *cli.Printer
	connector *cli.Connector
	asked     bool
	conn      *client.Conn
	failed    error // why the runtime did not list its containers and pods
	unnamed   bool  // a row shows only an id, because the runtime failed
	elsewhere bool  // the runtime is on another machine
	list      inventory
	processes []hostproc.Process // all processes of this machine, read on first use
}

// inventory has the pods and containers of the runtime.
type inventory struct {
	containers map[string]*runtimeapi.Container
	pods       map[string]*runtimeapi.PodSandbox
}

func (s *search) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

func (s *search) find(ctx context.Context, t whoTarget) ([]output.Owner, error) {
	if t.pid == 0 {
		return s.byPort(ctx, t)
	}
	owner, err := s.byPID(ctx, t.pid)
	switch {
	case errors.Is(err, proctree.ErrGone) && t.port != 0:
		owners, portErr := s.byPort(ctx, t)
		if portErr != nil {
			return nil, cli.WithHint(fmt.Errorf("there is no such process, and %w", portErr), "%s", cli.HintOf(portErr))
		}
		return owners, nil
	case errors.Is(err, proctree.ErrGone):
		return nil, errors.New("there is no such process")
	case err != nil:
		return nil, err
	}
	return []output.Owner{owner}, nil
}

// runtime lists containers and pods once. If a call fails, the lists are empty, and rows show the ids in the cgroups.
func (s *search) runtime(ctx context.Context) inventory {
	if s.asked {
		return s.list
	}
	s.asked = true
	s.failed = func() (err error) {
		if s.conn, err = s.connector.Connect(ctx); err != nil {
			return err
		}
		containers, err := s.conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err != nil {
			return err
		}
		pods, err := s.conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return err
		}
		s.list = inventory{map[string]*runtimeapi.Container{}, map[string]*runtimeapi.PodSandbox{}}
		for _, c := range containers.GetContainers() {
			s.list.containers[c.GetId()] = c
		}
		for _, p := range pods.GetItems() {
			s.list.pods[p.GetId()] = p
		}
		return nil
	}()
	return s.list
}

// all lists the processes of this machine, once.
func (s *search) all() []hostproc.Process {
	if s.processes == nil {
		var err error
		if s.processes, err = hostproc.All(); err != nil {
			s.printer.Debugf("processes: %v", err)
		}
	}
	return s.processes
}

// has fills in the owner for the id of a container or sandbox, and reports whether the runtime lists it.
func (l inventory) has(id string, row *output.Owner) bool {
	if c, ok := l.containers[id]; ok {
		row.Owner, row.ContainerID, row.Container, row.PodID = output.OwnerContainer, id, c.GetMetadata().GetName(), c.GetPodSandboxId()
		source := cli.ContainerPathOf(c)
		row.Pod, row.Namespace = source.Pod, source.Namespace
		if m := l.pods[row.PodID].GetMetadata(); m != nil {
			row.Pod, row.Namespace = m.GetName(), m.GetNamespace()
		}
		return true
	}
	if p, ok := l.pods[id]; ok {
		row.Owner, row.PodID, row.Pod, row.Namespace = output.OwnerPod, id, p.GetMetadata().GetName(), p.GetMetadata().GetNamespace()
		return true
	}
	return false
}

// hasPod reports whether a pod has the uid, and fills in the row from the pod's newest sandbox.
func (l inventory) hasPod(uid string, row *output.Owner) bool {
	var newest *runtimeapi.PodSandbox
	for _, p := range l.pods {
		if uid != "" && p.GetMetadata().GetUid() == uid && p.GetCreatedAt() >= newest.GetCreatedAt() {
			newest = p
		}
	}
	return newest != nil && l.has(newest.GetId(), row)
}

// permission adds a hint to an error that root would not get.
func permission(err error) error {
	if os.Geteuid() == 0 {
		return err
	}
	return cli.WithHint(err, "root sees the sockets of all users: `sudo crishim who`")
}
