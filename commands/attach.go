package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
)

// newAttach connects to a running container's own process.
func newAttach(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "attach",
		Usage:     "connect to the process of a running container",
		ArgsUsage: "CONTAINER",
		Description: describe("The container by name, pod/container, pod or id. When it ends, so does attach, with its status.\n"+
			"-it needs a container that was made with stdin and tty.",
			"crishim attach web", "crishim attach -it shell", "crishim attach -it --detach-keys ctrl-x shell"),
		Flags:  sessionFlags(),
		Action: action(env, attachOptionsOf, runAttach),
	}
}

type attachOptions struct {
	target  string
	session session
}

func attachOptionsOf(env *Env, c *cli.Context) (o attachOptions, err error) {
	if err = argCount(c, 1, 1); err != nil {
		return o, err
	}
	o.target = c.Args().First()
	o.session, err = readSession(env, c)
	return o, err
}

func (o attachOptions) request(id string) *runtimeapi.AttachRequest {
	return &runtimeapi.AttachRequest{
		ContainerId: id, Tty: o.session.tty,
		Stdin: o.session.stdin, Stdout: true, Stderr: !o.session.tty,
	}
}

func runAttach(ctx context.Context, env *Env, o attachOptions) error {
	o.session.fit(env)
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	c, err := conn.Container(ctx, o.target, client.Running)
	if err != nil {
		return err
	}
	s := o.session.streams(env)
	err = o.session.dial(ctx, s, func(ctx context.Context) (string, error) {
		res, err := conn.Runtime.Attach(ctx, o.request(c.GetId()))
		return res.GetUrl(), err
	}, stream.Attach)
	switch {
	case errors.Is(err, stream.ErrDetached):
		return detached(err, s, containerName(c)+" goes on")
	case err != nil, env.compat: // crictl knows no status of what it was attached to
		return err
	}
	return endOf(ctx, conn, c.GetId())
}

const (
	// endPatience is how long a runtime may take to notice that a container
	// has ended after its output has.
	endPatience = 2 * time.Second
	endPeriod   = 20 * time.Millisecond
)

// endOf is the status of a container whose streams have ended. One that is not
// to be known is a failure: the container goes on, having closed its output or lost its
// attach, or it has been removed, and its status with it.
func endOf(ctx context.Context, conn *client.Conn, id string) error {
	deadline := time.NewTimer(endPatience)
	defer deadline.Stop()
	tick := time.NewTicker(endPeriod)
	defer tick.Stop()
	for {
		res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if isGone(err) {
			return errors.New("the container has been removed, and its status with it")
		}
		if err != nil {
			return fmt.Errorf("the status of the container is not known: %w", err)
		}
		if st := res.GetStatus(); st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			if code := st.GetExitCode(); code != 0 {
				return &stream.ExitError{Code: int(code)}
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return errors.New("the session has ended, and the container goes on")
		case <-tick.C:
		}
	}
}
