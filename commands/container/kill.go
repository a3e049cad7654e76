package container

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	urfave "github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type killOptions struct {
	cli.Targets
	signal string
	dirs   pod.Dirs
}

// NewKill returns the verb that sends a signal. CRI has only SIGKILL, as a stop without grace; other signals need
// crishim's dockershim.
func NewKill(in *cli.Invocation) *cli.Verb {
	o := &killOptions{signal: "SIGKILL", dirs: in.PodDirs()}
	signal := cli.Typed(&o.signal, parseSignal, "signal", "Send `SIGNAL`, a name or number (other than KILL: crishim's dockershim only)", "s")
	signal.DefaultText = "KILL"
	return &cli.Verb{
		Usage:     "Send a signal to containers",
		ArgsUsage: "CONTAINER...",
		Args:      cli.CompleteContainers("running"),
		Description: cli.WithExamples("Sends a signal to the first process of containers: KILL ends it at once, other signals it may handle or ignore.\n"+
			"A paused container gets the signal when it is unpaused. KILL and the container's stop signal unpause it.",
			"crishim kill web", "crishim kill -s HUP web", "crishim kill -s USR1 --selector app=web"),
		Flags: []urfave.Flag{
			signal,
			o.AllFlag("Apply to all running containers"),
			cli.SelectorFlag(&o.Selector),
			o.NamespaceFlag(),
			o.DryRunFlag("signalled"),
		},
		Check: o.Check,
		RunOn: o.run,
	}
}

// parseSignal returns the name of a signal, or the number of a signal without a name.
func parseSignal(text string) (string, error) {
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if unix.SignalNum(name) != 0 {
		return name, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 64 {
		return "", errors.New("must be a signal such as HUP, SIGHUP or 1")
	}
	if name := unix.SignalName(unix.Signal(n)); name != "" {
		return name, nil
	}
	return text, nil
}

func (o *killOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	containers, err := o.Containers(ctx, conn, client.RunningAttempt, "running")
	return cli.Batch[*runtimeapi.Container]{
		What: "running container", Doing: "sending " + o.signal + " to",
		Would: func(c cli.ContainerTarget) string { return "Would send " + o.signal + " to " + c.Called() },
		Do: func(printer *cli.Printer, c cli.ContainerTarget) error {
			id, signal, began := c.Object.GetId(), strings.TrimPrefix(o.signal, "SIG"), printer.Now()
			_, err := conn.Crishim().SignalContainer(ctx, &api.SignalContainerRequest{ContainerId: id, Signal: o.signal})
			switch other := errors.Is(err, client.ErrNotDockershim); {
			case other && signal == "KILL":
				_, err = conn.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id})
			case other:
				return onlyOurShim(conn, "CRI cannot send "+o.signal, "kill -s "+signal+" "+id, "kill "+id+" "+signal)
			}
			if err == nil && (signal == "KILL" || signal == "TERM" || signal == "INT") {
				cli.RecordEnd(printer, o.dirs, conn, c.Object, "crishim kill -s "+signal, began, 0)
			}
			return err
		},
		Done: "%s",
	}.Run(printer, &o.Targets, containers, err)
}

// onlyOurShim returns the error for a runtime other than crishim's dockershim. Its hint names the runtime's own tool:
// the parameter ctr has the arguments of `ctr task` for containerd, and runc the arguments of runc for CRI-O.
func onlyOurShim(conn *client.Conn, cannot, ctr, runc string) error {
	err := fmt.Errorf("%s, and %s is not crishim's dockershim", cannot, conn.RuntimeEndpoint)
	switch conn.Version.GetRuntimeName() {
	case "containerd":
		address := ""
		if socket, ok := strings.CutPrefix(conn.RuntimeEndpoint, "unix://"); ok && socket != "/run/containerd/containerd.sock" {
			address = "-a " + socket + " "
		}
		return cli.WithHint(err, "`ctr %s-n k8s.io task %s` on its node does it", address, ctr)
	case "cri-o":
		return cli.WithHint(err, "`runc %s` on its node does it, or crun with the same arguments", runc)
	}
	return cli.WithHint(err, "see the tools of %s", conn.Version.GetRuntimeName())
}
