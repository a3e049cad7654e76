package container

import (
	"context"
	"errors"
	"fmt"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
)

// runCopy runs the command, or a shell, in a copy of the container: of its image, environment, mounts and
// security, in its pod. The container itself need not run, and is left alone.
func (o *debugOptions) runCopy(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	target, err := conn.FindContainer(ctx, o.exec.in.Query(o.exec.target, client.Any))
	if err != nil {
		return err
	}
	if err := podIsReady(ctx, conn, target.GetPodSandboxId(), cli.ContainerName(target)); err != nil {
		return err
	}
	if err := o.checkName(ctx, conn, target.GetPodSandboxId()); err != nil {
		return err
	}
	r := &runner{runOptions: &runOptions{session: o.exec.session}, env: env, conn: conn, podID: target.GetPodSandboxId()}
	if r.containerID, err = o.createCopy(ctx, conn, target); err != nil {
		return err
	}
	_, err = conn.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: r.containerID})
	if err == nil {
		err = r.foreground(ctx)
	} else if err = cannotRun(err); o.exec.shell {
		err = cli.WithHint(err, "without a shell in its image the copy needs a command: `crishim debug --copy-to %s %s COMMAND`", o.copyTo, o.exec.target)
	}
	if errors.Is(err, stream.ErrDetached) {
		return cli.Detached(err, o.exec.session.Streams(env), "the copy goes on: `crishim attach -it "+o.copyTo+"` returns to it, `crishim rm -f "+o.copyTo+"` removes it")
	}
	return cli.Join(err, r.cleanUp(ctx, !o.keep))
}

// checkName refuses the name of another container of the pod. The copy would pass for an attempt of that one, and
// could share its log.
func (o *debugOptions) checkName(ctx context.Context, conn *client.Conn, pod string) error {
	resp, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: pod}})
	if err != nil {
		return err
	}
	for _, c := range resp.GetContainers() {
		if c.GetPodSandboxId() == pod && c.GetMetadata().GetName() == o.copyTo {
			return cli.WithHint(fmt.Errorf("the pod has a container %s already", cli.Quote(o.copyTo)), "--copy-to takes another name, such as %s", o.copyTo+"-debug")
		}
	}
	return nil
}

// createCopy creates the copy: the engine's own below crishim's dockershim, else one with the
// configuration that the runtime tells. A kubelet must not take it for its own.
func (o *debugOptions) createCopy(ctx context.Context, conn *client.Conn, target *runtimeapi.Container) (string, error) {
	id, err := conn.CopyContainer(ctx, &api.CopyContainerRequest{
		ContainerId: target.GetId(), Name: o.copyTo, Command: o.exec.command, Tty: o.exec.session.TTY, Stdin: o.exec.session.Stdin,
		Labels: map[string]string{kube.LabelDebug: target.GetId()}, Temporary: !o.keep,
	})
	switch {
	case cli.IsGone(err):
		return "", cli.WithHint(err, "`crishim pull %s` gets the image", target.GetImage().GetImage())
	case !errors.Is(err, client.ErrNotDockershim):
		return id, err
	}
	config, err := containerConfigOf(ctx, conn, target.GetId())
	if err != nil {
		return "", err
	}
	pod, err := podConfigOf(ctx, conn, target.GetPodSandboxId())
	if err != nil {
		return "", err
	}
	config.Metadata, config.LogPath = &runtimeapi.ContainerMetadata{Name: o.copyTo}, ""
	config.Command, config.Args = o.exec.command, nil
	config.Tty, config.Stdin, config.StdinOnce = o.exec.session.TTY, o.exec.session.Stdin, o.exec.session.Stdin
	for _, m := range []map[string]string{config.Labels, config.Annotations} {
		for key := range m {
			if strings.HasPrefix(key, "io.kubernetes.") {
				delete(m, key)
			}
		}
	}
	if config.Labels == nil {
		config.Labels = map[string]string{}
	}
	config.Labels[kube.LabelDebug] = target.GetId()
	return createContainer(ctx, conn, target.GetPodSandboxId(), config, pod)
}
