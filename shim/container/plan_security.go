package container

import (
	"fmt"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
)

func planNamespaces(p *plan, r *runtimeapi.CreateContainerRequest, f facts) error {
	pod := &runtimeapi.NamespaceOption{Pid: f.pod.PID}
	if f.sandbox.HostConfig.NetworkMode.IsHost() {
		pod.Network = runtimeapi.NamespaceMode_NODE
	}
	if f.sandbox.HostConfig.IpcMode.IsHost() {
		pod.Ipc = runtimeapi.NamespaceMode_NODE
	}
	o := r.GetConfig().GetLinux().GetSecurityContext().GetNamespaceOptions()
	if o == nil {
		// A config that says nothing about namespaces means those of its pod.
		o = pod
	}
	return convert.Namespaces(p.host, o, convert.Pod{ID: f.sandbox.ID, Namespaces: pod}, f.target)
}

func planUser(p *plan, r *runtimeapi.CreateContainerRequest, f facts) error {
	wish, err := convert.Wish(r.GetConfig().GetLinux().GetSecurityContext(), imageUser(f.image))
	if err != nil {
		return err
	}
	p.config.User, p.host.GroupAdd, err = wish.Engine(f.passwd, f.group)
	return err
}

func planSecurity(p *plan, r *runtimeapi.CreateContainerRequest, f facts) (err error) {
	sc := r.GetConfig().GetLinux().GetSecurityContext()
	p.host.ReadonlyRootfs = sc.GetReadonlyRootfs()
	p.host.Privileged = sc.GetPrivileged()
	if sc.GetNoNewPrivs() {
		p.host.SecurityOpt = append(p.host.SecurityOpt, "no-new-privileges")
	}
	p.host.CapAdd, p.host.CapDrop, err = convert.Capabilities(sc.GetCapabilities(), f.given)
	if err != nil || sc.GetPrivileged() {
		// A privileged container has no profile, no label and no masked path;
		// the CRI says that what is asked for there has no effect.
		return err
	}
	p.host.SecurityOpt = append(p.host.SecurityOpt, convert.SELinuxOptions(sc.GetSelinuxOptions())...)
	planPaths(p, sc)
	return planProfiles(p, sc, f)
}

// planPaths: lists that are empty on the wire mean that no path is masked,
// which kubelets use for an unmasked /proc. Only a config without any security
// context, as people write by hand, gets the engine's default lists.
func planPaths(p *plan, sc *runtimeapi.LinuxContainerSecurityContext) {
	if sc == nil {
		return
	}
	p.host.MaskedPaths = append([]string{}, sc.GetMaskedPaths()...)
	p.host.ReadonlyPaths = append([]string{}, sc.GetReadonlyPaths()...)
}

func planProfiles(p *plan, sc *runtimeapi.LinuxContainerSecurityContext, f facts) error {
	seccomp, err := seccompProfile(sc)
	if err != nil {
		return err
	}
	option, err := convert.SeccompOption(seccomp, f.seccomp)
	if err != nil {
		return err
	}
	apparmor, err := appArmorProfile(sc)
	if err != nil {
		return err
	}
	if err := convert.CheckProfiles(f.info.SecurityOptions, seccomp, apparmor); err != nil {
		return err
	}
	if f.unloaded {
		return invalid("AppArmor profile %q is not loaded on the node", apparmor.GetLocalhostRef())
	}
	for _, o := range []string{option, convert.AppArmorOption(apparmor)} {
		if o != "" {
			p.host.SecurityOpt = append(p.host.SecurityOpt, o)
		}
	}
	return nil
}

// unable is the refusal of what this engine or host cannot do.
func unable(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, errdefs.ErrNotImplemented)...)
}
