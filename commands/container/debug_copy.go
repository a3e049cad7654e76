package container

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/shellwords"
)

// runCopy runs the command, or a shell, in a copy of the container in a new pod. The original container and its pod
// need not run, and stay unchanged.
func (o *debugOptions) runCopy(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	target, err := conn.FindContainer(ctx, o.exec.in.Query(o.exec.target, client.NewestAttempt))
	if err != nil {
		return err
	}
	r := &runner{runOptions: &runOptions{session: o.exec.session}, Printer: printer, conn: conn}
	if err := o.createCopy(ctx, printer, r, target); err != nil {
		return cli.Join(err, r.cleanUp(ctx, true))
	}
	_, err = conn.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: r.containerID})
	if err == nil {
		err = r.foreground(ctx)
	} else if err = cannotRun(err); o.exec.shell {
		err = cli.WithHint(err, "without a shell in its image the copy needs a command: `crishim debug --copy-to %s COMMAND`", shellwords.Quote(o.copyTo, o.exec.target))
	}
	if errors.Is(err, stream.ErrDetached) {
		copyTo := shellwords.Quote(o.copyTo)
		return cli.NoteDetach(err, o.exec.session.Streams(printer), "the copy goes on: `crishim attach -it "+copyTo+"` returns to it, `crishim rmp -f "+copyTo+"` removes it")
	}
	return cli.Join(err, r.cleanUp(ctx, !o.keep))
}

// createCopy creates the pod and the container. crishim's dockershim copies the engine's container. For other runtimes
// the configuration is read from the target's verbose status.
func (o *debugOptions) createCopy(ctx context.Context, printer *cli.Printer, r *runner, target *runtimeapi.Container) error {
	handler, err := o.copyPod(ctx, r, target.GetPodSandboxId())
	if err != nil {
		return err
	}
	config, own := &runtimeapi.ContainerConfig{}, r.conn.IsDockershim(ctx)
	if !own {
		if config, err = containerConfigOf(ctx, r.conn, target.GetId()); err != nil {
			return err
		}
	}
	if o.image != "" {
		config.Image = &runtimeapi.ImageSpec{Image: o.image}
		if err := o.pull.PullFor(ctx, printer, r.conn, config, r.pod); err != nil {
			return err
		}
	}
	if r.podID, err = cli.RunPod(ctx, r.conn, r.dirs, r.pod, handler); err != nil {
		return err
	}
	r.madePod = true
	label := map[string]string{kube.LabelDebug: target.GetId()}
	if own {
		copied, err := r.conn.Crishim().CopyContainer(ctx, &api.CopyContainerRequest{
			ContainerId: target.GetId(), PodSandboxId: r.podID, Image: o.image, Name: o.copyTo, Command: o.exec.command,
			Tty: o.exec.session.TTY, Stdin: o.exec.session.Stdin, Labels: label, Temporary: !o.keep,
		})
		if cli.IsGone(err) {
			err = cli.WithHint(err, "`crishim pull %s` gets the image", shellwords.Quote(target.GetImage().GetImage()))
		}
		r.containerID = copied.GetContainerId()
		return err
	}
	config.Metadata, config.LogPath = &runtimeapi.ContainerMetadata{Name: o.copyTo}, ""
	config.Command, config.Args = o.exec.command, nil
	config.Tty, config.Stdin, config.StdinOnce = o.exec.session.TTY, o.exec.session.Stdin, o.exec.session.Stdin
	config.Labels, config.Annotations = withoutKubelets(config.Labels), withoutKubelets(config.Annotations)
	maps.Copy(config.Labels, label)
	r.containerID, err = createContainer(ctx, r.conn, r.podID, config, r.pod)
	return err
}

// copyPod copies the configuration of a pod to the new pod, and returns the runtime handler. It omits host ports,
// since the other pod may hold them, and a kubelet's cgroup.
func (o *debugOptions) copyPod(ctx context.Context, r *runner, like string) (handler string, err error) {
	if r.pod, err = podConfigOf(ctx, r.conn, like); err != nil {
		return "", err
	}
	pods, err := r.conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return "", err
	}
	namespace := r.pod.GetMetadata().GetNamespace()
	for _, p := range pods.GetItems() {
		if p.GetId() == like {
			handler = p.GetRuntimeHandler()
		}
		if m := p.GetMetadata(); m.GetName() == o.copyTo && m.GetNamespace() == namespace {
			return "", cli.WithHint(fmt.Errorf("there is a pod %s already", cli.Quote(cli.PodPath(m))), "--copy-to takes another name, such as %s", o.copyTo+"-debug")
		}
	}
	r.pod.Metadata = &runtimeapi.PodSandboxMetadata{Name: o.copyTo, Namespace: namespace, Uid: cli.NewUID()}
	r.pod.Labels, r.pod.Annotations = withoutKubelets(r.pod.Labels), withoutKubelets(r.pod.Annotations)
	r.pod.LogDirectory, r.pod.PortMappings = "", nil
	if r.pod.Hostname != "" {
		r.pod.Hostname = o.copyTo
	}
	if r.pod.Linux != nil {
		r.pod.Linux.CgroupParent, r.pod.Linux.Overhead, r.pod.Linux.Resources = "", nil, nil
	}
	return handler, nil
}

// withoutKubelets drops the labels or annotations by which kubelets and crishim find their pods.
func withoutKubelets(all map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range all {
		if !strings.HasPrefix(key, "io.kubernetes.") && !strings.HasPrefix(key, "crishim.io/") && key != kube.AnnotationRun {
			kept[key] = value
		}
	}
	return kept
}
