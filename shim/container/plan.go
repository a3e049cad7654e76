package container

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/state"
)

const shmSize = 64 << 20

func makePlan(r *runtimeapi.CreateContainerRequest, f facts) (p lifecycle.Spec, err error) {
	c, logDir, logPath := r.GetConfig(), r.GetSandboxConfig().GetLogDirectory(), ""
	if logDir != "" && c.GetLogPath() != "" {
		logPath = path.Join(logDir, c.GetLogPath())
	}
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
			// In a pod the kubelet's probes replace the image's health check.
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			Labels: state.EncodeContainer(state.Container{
				Metadata:  c.GetMetadata(),
				Pod:       f.pod.Metadata,
				SandboxID: f.pod.Detail.ID,
				LogPath:   logPath,
				LogDir:    logDir,
				// Kubelets send the image's id as the image, and the name from the pod spec as UserSpecifiedImage.
				Image:       cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage()),
				Labels:      c.GetLabels(),
				Annotations: c.GetAnnotations(),
				Created:     f.now,
				Owner:       f.owner,
			}, state.ImageLabels(f.image)),
		},
		Host: &container.HostConfig{
			ShmSize: shmSize, Runtime: f.pod.Detail.HostConfig.Runtime, ConsoleSize: consoleSize(c.GetAnnotations()[api.AnnotationConsoleSize]),
		},
	}
	if p.Config.Env, err = convert.Env(c.GetEnvs()); err != nil {
		return p, err
	}
	if p.Config.StopSignal, err = convert.EngineSignal(c.GetStopSignal()); err != nil {
		return p, err
	}
	for _, topic := range []func(*lifecycle.Spec, *runtimeapi.CreateContainerRequest, facts) error{
		planMounts, planResources, planNamespaces, planSecurity,
	} {
		if err := topic(&p, r, f); err != nil {
			return p, err
		}
	}
	user, err := convert.RequestedUser(c.GetLinux().GetSecurityContext(), imageUser(f.image))
	if err != nil {
		return p, err
	}
	p.Config.User, p.Host.GroupAdd, err = user.Engine(f.passwd, f.group)
	return p, err
}

// consoleSize parses ROWSxCOLUMNS. Engines before API 1.42 ignore the size.
func consoleSize(text string) [2]uint {
	var rows, columns uint16
	if _, err := fmt.Sscanf(text, "%dx%d", &rows, &columns); err != nil {
		return [2]uint{}
	}
	return [2]uint{uint(rows), uint(columns)}
}

func planResources(p *lifecycle.Spec, r *runtimeapi.CreateContainerRequest, f facts) error {
	wanted, parent := r.GetConfig().GetLinux().GetResources(), r.GetSandboxConfig().GetLinux().GetCgroupParent()
	devices, err := convert.Devices(r.GetConfig().GetDevices())
	if err != nil {
		return err
	}
	requests, err := convert.CDIDevices(r.GetConfig().GetCDIDevices(), r.GetConfig().GetAnnotations())
	switch {
	case err != nil:
		return err
	case len(requests) > 0 && !f.speaks("1.44"):
		return unable("CDI devices need Docker Engine 25 (API 1.44), this one speaks API %s", f.api)
	case len(requests) > 0 && len(f.info.CDISpecDirs) == 0:
		return unable("the engine has no CDI devices: features.cdi in its daemon.json enables them")
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
	// The engine has no fields for these limits. They are written to the cgroup after the start.
	files, err := convert.CgroupFiles(wanted, f.info.CgroupVersion == "2")
	if err != nil || len(files) == 0 {
		return err
	}
	b, err := json.Marshal(limits{Files: files, Hugepages: wanted.GetHugepageLimits(), Unified: wanted.GetUnified()})
	p.Config.Labels[state.LabelOwnLimits] = string(b)
	return err
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
		o = pod
	}
	return convert.Namespaces(p.Host, o, convert.Pod{ID: f.pod.Detail.ID, Namespaces: pod}, f.target)
}

func planSecurity(p *lifecycle.Spec, r *runtimeapi.CreateContainerRequest, f facts) (err error) {
	sc := r.GetConfig().GetLinux().GetSecurityContext()
	p.Host.ReadonlyRootfs = sc.GetReadonlyRootfs()
	p.Host.Privileged = sc.GetPrivileged()
	if sc.GetNoNewPrivs() {
		p.Host.SecurityOpt = append(p.Host.SecurityOpt, "no-new-privileges")
	}
	p.Host.CapAdd, p.Host.CapDrop, err = convert.Capabilities(sc.GetCapabilities(), f.known)
	if err != nil || sc.GetPrivileged() {
		// By CRI, profiles, SELinux labels and masked paths have no effect on a privileged container.
		return err
	}
	p.Host.SecurityOpt = append(p.Host.SecurityOpt, convert.SELinuxOptions(sc.GetSelinuxOptions())...)
	if sc != nil {
		// Empty lists unmask all paths, as a kubelet requests for an unmasked /proc. A config without a security
		// context gets the engine's default.
		p.Host.MaskedPaths = append([]string{}, sc.GetMaskedPaths()...)
		p.Host.ReadonlyPaths = append([]string{}, sc.GetReadonlyPaths()...)
	}
	seccomp, err := seccompProfile(sc)
	if err != nil {
		return err
	}
	apparmor, err := appArmorProfile(sc)
	if err != nil {
		return err
	}
	options, err := convert.ProfileOptions(f.info.SecurityOptions, seccomp, f.seccomp, apparmor)
	if err == nil && f.unloaded {
		return invalid("AppArmor profile %q is not loaded on the node", apparmor.GetLocalhostRef())
	}
	p.Host.SecurityOpt = append(p.Host.SecurityOpt, options...)
	return err
}

func planMounts(p *lifecycle.Spec, r *runtimeapi.CreateContainerRequest, f facts) (err error) {
	ms := r.GetConfig().GetMounts()
	p.Host.Binds, p.Host.Mounts, err = convert.Mounts(ms, convert.MountFeatures{
		CreateMountpoint:  f.speaks("1.42"),
		RecursiveReadOnly: f.speaks("1.44"),
		SELinux:           convert.HasSecurity(f.info.SecurityOptions, "selinux"),
	})
	if err != nil {
		return err
	}
	var label []state.ImageMount
	for _, m := range ms {
		if m.GetImage().GetImage() == "" {
			continue
		}
		i := f.mounted[m.GetImage().GetImage()]
		em, err := planImageMount(m, i, f)
		if err != nil {
			return fmt.Errorf("ImageVolumeMountFailed: mount %q: %w", m.GetContainerPath(), err)
		}
		p.Host.Mounts = append(p.Host.Mounts, em)
		label = append(label, state.ImageMount{Path: em.Target, Image: m.GetImage().GetImage(), ID: i.ID, SubPath: m.GetImageSubPath()})
	}
	p.Config.Labels[state.LabelOwnMounts] = state.EncodeImageMounts(label)
	return nil
}

const imageMountAPI = "1.48"

// planImageMount mounts an image read-only. For engines before 28 it creates a volume with an overlay of the image's
// layers, which is removed with the container.
func planImageMount(m *runtimeapi.Mount, i image.InspectResponse, f facts) (mount.Mount, error) {
	if err := convert.CheckMountOptions(m); err != nil {
		return mount.Mount{}, err
	}
	target := path.Join("/", m.GetContainerPath())
	if f.speaks(imageMountAPI) {
		em := mount.Mount{Type: mount.TypeImage, Source: i.ID, Target: target}
		if m.GetImageSubPath() != "" {
			em.ImageOptions = &mount.ImageOptions{Subpath: m.GetImageSubPath()}
		}
		return em, nil
	}
	dirs := layerDirs(i.GraphDriver)
	if len(dirs) == 0 {
		return mount.Mount{}, unable("image mounts need Docker Engine 28 (API 1.48) or the overlay2 storage driver; this engine has API %s and %s",
			f.api, i.GraphDriver.Name)
	}
	if m.GetImageSubPath() != "" {
		var err error
		if dirs, err = subLayers(dirs, m.GetImageSubPath()); err != nil {
			return mount.Mount{}, err
		}
	}
	for _, dir := range dirs {
		if !plainName(dir) { // the mount options cannot quote a name
			return mount.Mount{}, invalid("the layer %q has a name that an overlay cannot be made of", dir)
		}
	}
	options := map[string]string{"type": "overlay", "device": "overlay", "o": "ro,lowerdir=" + strings.Join(dirs, ":")}
	if len(dirs) == 1 { // an overlay needs two layers, so a single layer is bind-mounted
		options = map[string]string{"type": "none", "device": dirs[0], "o": "bind,ro"}
	}
	return mount.Mount{
		Type: mount.TypeVolume, Target: target,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true, DriverConfig: &mount.Driver{Name: "local", Options: options}},
	}, nil
}

func plainName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return strings.ContainsRune(`,:\"`, r) || unicode.IsControl(r) })
}

func imageMounts(noted []state.ImageMount) []*runtimeapi.Mount {
	var ms []*runtimeapi.Mount
	for _, n := range noted {
		ms = append(ms, &runtimeapi.Mount{
			ContainerPath: n.Path,
			Readonly:      true,
			ImageSubPath:  n.SubPath,
			Image:         &runtimeapi.ImageSpec{Image: n.Image, ImageRef: n.ID},
		})
	}
	return ms
}
