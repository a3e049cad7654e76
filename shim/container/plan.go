package container

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/state"
)

// shmSize is what dockershim gave everybody, whatever the engine's default is.
const shmSize = 64 << 20

// makePlan turns a request and the facts into the engine's configuration. It
// is pure: everything it depends on is in its arguments.
func makePlan(r *runtimeapi.CreateContainerRequest, f facts) (p lifecycle.Spec, err error) {
	c := r.GetConfig()
	p = lifecycle.Spec{
		Name: state.ContainerName(f.pod.Metadata, c.GetMetadata()),
		Config: &container.Config{
			Image:      f.image.ID,
			Entrypoint: c.GetCommand(),
			Cmd:        c.GetArgs(),
			WorkingDir: c.GetWorkingDir(),
			Tty:        c.GetTty(),
			OpenStdin:  c.GetStdin(),
			StdinOnce:  c.GetStdinOnce(),
			// An image's health check is the engine's business, a pod's probes are
			// the kubelet's; without this both run.
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			Labels: state.EncodeContainer(state.Container{
				Metadata:  c.GetMetadata(),
				Pod:       f.pod.Metadata,
				SandboxID: f.pod.Detail.ID,
				LogPath:   logPath(r),
				LogDir:    r.GetSandboxConfig().GetLogDirectory(),
				// Kubelets send the image's id, and the name that a person gave it beside it.
				Image:       cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage()),
				Labels:      c.GetLabels(),
				Annotations: c.GetAnnotations(),
				Created:     f.now,
			}),
		},
		Host: &container.HostConfig{ShmSize: shmSize, Runtime: f.pod.Detail.HostConfig.Runtime},
	}
	if p.Config.Env, err = convert.Env(c.GetEnvs()); err != nil {
		return p, err
	}
	if p.Config.StopSignal, err = convert.EngineSignal(c.GetStopSignal()); err != nil {
		return p, err
	}
	for _, topic := range []func(*lifecycle.Spec, *runtimeapi.CreateContainerRequest, facts) error{
		planMounts, planResources, planNamespaces, planSecurity, planUser,
	} {
		if err := topic(&p, r, f); err != nil {
			return p, err
		}
	}
	return p, nil
}

// logPath is where the log is wanted, "" for nowhere.
func logPath(r *runtimeapi.CreateContainerRequest) string {
	dir, file := r.GetSandboxConfig().GetLogDirectory(), r.GetConfig().GetLogPath()
	if dir == "" || file == "" {
		return ""
	}
	return path.Join(dir, file)
}

// planResources: devices are resources for the engine, too.
func planResources(p *lifecycle.Spec, r *runtimeapi.CreateContainerRequest, f facts) error {
	wanted, parent := r.GetConfig().GetLinux().GetResources(), r.GetSandboxConfig().GetLinux().GetCgroupParent()
	devices, err := convert.Devices(r.GetConfig().GetDevices())
	if err != nil {
		return err
	}
	requests, err := convert.CDIDevices(r.GetConfig().GetCDIDevices())
	if err != nil {
		return err
	}
	if len(requests) > 0 && !f.speaks("1.44") {
		return unable("CDI devices need Docker Engine 25 (API 1.44), this one speaks API %s", f.api)
	}
	if p.Host.Resources, err = convert.Resources(wanted); err != nil {
		return err
	}
	p.Host.Devices, p.Host.DeviceRequests, p.Host.OomScoreAdj = devices, requests, f.oomScore
	if p.Host.CgroupParent, err = convert.CgroupParent(parent, f.info.CgroupDriver); err != nil {
		return err
	}
	if parent == "" {
		p.Host.CgroupParent = f.pod.Detail.HostConfig.CgroupParent
	}
	return planLimits(p, wanted, f)
}

// planLimits notes in a label the limits that the engine has no field for.
// They are written into the container's cgroup once it has one.
func planLimits(p *lifecycle.Spec, wanted *runtimeapi.LinuxContainerResources, f facts) error {
	files, err := convert.CgroupFiles(wanted, f.info.CgroupVersion == "2")
	if err != nil || len(files) == 0 {
		return err
	}
	b, err := json.Marshal(limits{Files: files, Hugepages: wanted.GetHugepageLimits(), Unified: wanted.GetUnified()})
	if err != nil {
		return fmt.Errorf("resource limits as a label: %w", err)
	}
	p.Config.Labels[state.LabelOwnLimits] = string(b)
	return nil
}

func planNamespaces(p *lifecycle.Spec, r *runtimeapi.CreateContainerRequest, f facts) error {
	pod := &runtimeapi.NamespaceOption{Pid: f.pod.PID}
	if f.pod.Detail.HostConfig.NetworkMode.IsHost() {
		pod.Network = runtimeapi.NamespaceMode_NODE
	}
	if f.pod.Detail.HostConfig.IpcMode.IsHost() {
		pod.Ipc = runtimeapi.NamespaceMode_NODE
	}
	o := r.GetConfig().GetLinux().GetSecurityContext().GetNamespaceOptions()
	if o == nil {
		// A config that says nothing about namespaces means those of its pod.
		o = pod
	}
	return convert.Namespaces(p.Host, o, convert.Pod{ID: f.pod.Detail.ID, Namespaces: pod}, f.target)
}

func planUser(p *lifecycle.Spec, r *runtimeapi.CreateContainerRequest, f facts) error {
	wish, err := convert.Wish(r.GetConfig().GetLinux().GetSecurityContext(), imageUser(f.image))
	if err != nil {
		return err
	}
	p.Config.User, p.Host.GroupAdd, err = wish.Engine(f.passwd, f.group)
	return err
}

func planSecurity(p *lifecycle.Spec, r *runtimeapi.CreateContainerRequest, f facts) (err error) {
	sc := r.GetConfig().GetLinux().GetSecurityContext()
	p.Host.ReadonlyRootfs = sc.GetReadonlyRootfs()
	p.Host.Privileged = sc.GetPrivileged()
	if sc.GetNoNewPrivs() {
		p.Host.SecurityOpt = append(p.Host.SecurityOpt, "no-new-privileges")
	}
	p.Host.CapAdd, p.Host.CapDrop, err = convert.Capabilities(sc.GetCapabilities(), f.given)
	if err != nil || sc.GetPrivileged() {
		// A privileged container has no profile, no label and no masked path;
		// the CRI says that what is asked for there has no effect.
		return err
	}
	p.Host.SecurityOpt = append(p.Host.SecurityOpt, convert.SELinuxOptions(sc.GetSelinuxOptions())...)
	if sc != nil {
		// Lists that are empty on the wire mean that no path is masked, which kubelets use
		// for an unmasked /proc. Only a config without any security context, as people
		// write by hand, gets the engine's default lists.
		p.Host.MaskedPaths = append([]string{}, sc.GetMaskedPaths()...)
		p.Host.ReadonlyPaths = append([]string{}, sc.GetReadonlyPaths()...)
	}
	return planProfiles(p, sc, f)
}

func planProfiles(p *lifecycle.Spec, sc *runtimeapi.LinuxContainerSecurityContext, f facts) error {
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
			p.Host.SecurityOpt = append(p.Host.SecurityOpt, o)
		}
	}
	return nil
}

// unable is the refusal of what this engine or host cannot do.
func unable(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, errdefs.ErrNotImplemented)...)
}
