package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
)

var errNoShell = errors.New("no shell")

// shellCommand opens the best shell that a container has. It takes one to look
// for others; every image with bash or ash has sh as well, or nearly.
func shellCommand() []string {
	return []string{"sh", "-c", "command -v bash >/dev/null && exec bash; command -v ash >/dev/null && exec ash; exec sh"}
}

// openShell runs the first shell that the container has. Whether it has one is
// asked by a command that does nothing: a session that ended with 127 does not
// tell a shell that is missing from one in which the last command was.
func (o execOptions) openShell(has func(shell string) (bool, error), run func(execOptions) error) error {
	for _, command := range [][]string{o.command, {"bash"}, {"ash"}} {
		there, err := has(command[0])
		if err != nil {
			return err
		}
		if there {
			o.command = command
			return run(o)
		}
	}
	return errNoShell
}

// hasShell asks whether a shell can be started in a container.
func (o execOptions) hasShell(ctx context.Context, conn *client.Conn, id string) func(string) (bool, error) {
	return func(shell string) (bool, error) {
		o.command = []string{shell, "-c", "exit 0"}
		res, err := conn.ExecSync(ctx, o.syncRequest(id), o.process)
		if err = cannotRun(err); err != nil {
			var status *statusError
			if errors.As(err, &status) {
				return false, nil
			}
			return false, err
		}
		return res.GetExitCode() != exitNotFound && res.GetExitCode() != exitCannotRun, nil
	}
}

// detached tells the user what became of the other side. That they detached is
// no failure.
func detached(err error, s stream.Streams, what string) error {
	if s.Out != nil {
		fmt.Fprintf(errorStream(s), "\r\ndetached; %s\n", what)
	}
	if err == stream.ErrDetached { //nolint:errorlint // nothing else must be lost
		return nil
	}
	return err
}

// errorStream is where to speak to the user of a session.
func errorStream(s stream.Streams) io.Writer {
	if s.Err != nil {
		return s.Err
	}
	return s.Out
}

// containerName is how messages name a container: pod/name where the pod is
// known, its id where it has no name.
func containerName(c *runtimeapi.Container) string {
	name := cmp.Or(c.GetMetadata().GetName(), c.GetId())
	if pod := c.GetLabels()[labelPodName]; pod != "" {
		return pod + "/" + name
	}
	return name
}
