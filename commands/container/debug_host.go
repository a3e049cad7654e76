package container

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
)

// runHost runs the command, or a shell, on the runtime's host: in a privileged container that has the
// host's processes, network and IPC, and reaches its files through its first process. Mounting / would take
// a host whose mounts propagate.
func (o *debugOptions) runHost(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	namespaces := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE,
	}
	container := o.config("")
	container.Labels = map[string]string{debugLabel: "host"}
	container.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{Privileged: true, NamespaceOptions: namespaces}
	pod := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: container.Metadata.Name},
		Labels:   container.Labels,
		Linux:    &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{Privileged: true, NamespaceOptions: namespaces}},
	}
	cli.CompletePod(pod)
	r := &runner{runOptions: &runOptions{container: container, pod: pod, pull: o.pull, withPull: true}, env: env, conn: conn}
	env.Note("crishim: on the host as root: a privileged container of %s with the host's processes, network and files%s",
		o.image, map[bool]string{false: ", removed afterwards"}[o.keep])
	if err := r.start(ctx); err != nil {
		return cli.Join(cannotRun(err), r.cleanUp(ctx, true))
	}
	o.exec.shell, o.exec.command = false, append([]string{"sh", "-c", enterHost, "sh"}, o.exec.command...)
	helper := &runtimeapi.Container{Id: r.containerID, Metadata: container.GetMetadata()}
	err := o.exec.inOne(ctx, conn, helper, o.exec.session.Streams(env))
	if o.keep {
		return err
	}
	return cli.Join(err, r.cleanUp(ctx, true))
}

// enterHost joins the host's mounts, so that one can mount there, too. An image without nsenter has
// chroot, for the files.
const enterHost = `command -v nsenter >/dev/null && exec nsenter -t 1 -m -u -- "$@"; exec chroot /proc/1/root "$@"`
