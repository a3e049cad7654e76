package container

import (
	"context"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/state"
)

// facts is all that a plan needs apart from the request.
type facts struct {
	api      string // version of the engine's API that is spoken
	info     system.Info
	pod      state.FoundSandbox
	image    image.InspectResponse
	mounted  map[string]image.InspectResponse // image mounts by the reference asked for
	target   string                           // id of the container whose processes are joined
	seccomp  []byte                           // content of a localhost profile
	passwd   []byte                           // the image's user files, where they are needed
	group    []byte
	given    []string // capabilities that the engine can give, where all are asked for and it has not all
	unloaded bool     // an AppArmor profile that is asked for is not in the kernel
	oomScore int      // what the host allows of the score asked for
	now      time.Time
}

// gather asks for everything the plan needs. Nothing is changed.
func (s *Service) gather(ctx context.Context, r *runtimeapi.CreateContainerRequest) (f facts, err error) {
	f.now = s.now()
	if f.pod, err = state.FindSandbox(ctx, s.engine, r.GetPodSandboxId()); err != nil {
		return f, err
	}
	if !f.pod.Detail.State.Running {
		return f, fmt.Errorf("pod sandbox %s is not running: %w", r.GetPodSandboxId(), errdefs.ErrFailedPrecondition)
	}
	if needsInfo(r) {
		if f.info, err = s.info.get(ctx); err != nil {
			return f, err
		}
	}
	f.api = s.engine.ClientVersion()
	if f.image, err = s.gatherImage(ctx, r.GetConfig().GetImage().GetImage()); err != nil {
		return f, err
	}
	if err := s.gatherMounted(ctx, &f, r.GetConfig().GetMounts()); err != nil {
		return f, err
	}
	sc := r.GetConfig().GetLinux().GetSecurityContext()
	if err := s.gatherTarget(ctx, &f, sc.GetNamespaceOptions()); err != nil {
		return f, err
	}
	if err := gatherSeccomp(&f, sc); err != nil {
		return f, err
	}
	f.unloaded = appArmorMissing(f, sc)
	// Newer engines give by themselves what they have.
	if !f.speaks("1.42") && convert.AllCapabilities(sc.GetCapabilities().GetAddCapabilities()) {
		f.given = knownCapabilities(s.given())
	}
	f.oomScore = s.allowedScore(f, int(r.GetConfig().GetLinux().GetResources().GetOomScoreAdj()))
	return f, s.gatherUsers(ctx, &f, sc)
}

func (s *Service) gatherImage(ctx context.Context, ref string) (image.InspectResponse, error) {
	i, err := s.engine.ImageInspect(ctx, ref)
	if errdefs.IsNotFound(err) {
		return i, fmt.Errorf("no such image %q: %w", ref, errdefs.ErrNotFound)
	}
	if err != nil {
		return i, fmt.Errorf("image %s: %w", ref, err)
	}
	if i.ID == "" {
		return i, fmt.Errorf("image %s: the engine gave no id: %w", ref, errdefs.ErrInternal)
	}
	return i, nil
}

func (s *Service) gatherMounted(ctx context.Context, f *facts, ms []*runtimeapi.Mount) error {
	f.mounted = map[string]image.InspectResponse{}
	for _, m := range ms {
		ref := m.GetImage().GetImage()
		if ref == "" {
			continue
		}
		i, err := s.gatherImage(ctx, ref)
		if err != nil {
			return fmt.Errorf("ImageVolumeMountFailed: mount %q: %w", m.GetContainerPath(), err)
		}
		if err := s.checkSubPath(ctx, f, i, m.GetImageSubPath()); err != nil {
			return fmt.Errorf("ImageVolumeMountFailed: mount %q: %w", m.GetContainerPath(), err)
		}
		f.mounted[ref] = i
	}
	return nil
}

// checkSubPath asks an engine that mounts images itself whether the image has the path:
// not every one refuses a container where that is missing. Of
// layers that the shim puts together the plan finds out.
func (s *Service) checkSubPath(ctx context.Context, f *facts, i image.InspectResponse, sub string) error {
	if sub == "" || !f.speaks(imageMountAPI) {
		return nil
	}
	return inImage(ctx, s.engine, i.ID, func(id string) error {
		_, err := s.engine.ContainerStatPath(ctx, id, path.Join("/", sub))
		if errdefs.IsNotFound(err) {
			return invalid("%s does not exist in the image", sub)
		}
		return err
	})
}

// gatherTarget finds the container whose PID namespace is to be joined. It has
// to be of the same pod and have a namespace of its own to share.
func (s *Service) gatherTarget(ctx context.Context, f *facts, o *runtimeapi.NamespaceOption) error {
	if o.GetPid() != runtimeapi.NamespaceMode_TARGET || o.GetTargetId() == "" {
		return nil
	}
	m, err := state.FindContainer(ctx, s.engine, o.GetTargetId())
	switch {
	case err != nil:
		return fmt.Errorf("target container: %w", err)
	case m.SandboxID != f.pod.Detail.ID:
		return invalid("target container %s is in another pod", o.GetTargetId())
	case !m.Running():
		return fmt.Errorf("target container %s is not running: %w", o.GetTargetId(), errdefs.ErrFailedPrecondition)
	case m.Detail.HostConfig.PidMode != "":
		return invalid("target container %s has no PID namespace of its own", o.GetTargetId())
	}
	f.target = m.Detail.ID
	return nil
}

func gatherSeccomp(f *facts, sc *runtimeapi.LinuxContainerSecurityContext) error {
	p, err := seccompProfile(sc)
	if err != nil || sc.GetPrivileged() || p.GetProfileType() != runtimeapi.SecurityProfile_Localhost {
		return err
	}
	f.seccomp, err = bounded.ReadRegular(p.GetLocalhostRef(), convert.MaxSeccomp)
	if err != nil {
		return fmt.Errorf("seccomp profile: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return nil
}

// knownCapabilities are those that an engine before 23 has a name for.
func knownCapabilities(given []string) []string {
	return slices.DeleteFunc(slices.Clone(given), func(name string) bool {
		return slices.Contains([]string{"PERFMON", "BPF", "CHECKPOINT_RESTORE"}, name)
	})
}

// appArmorMissing looks for a profile of the node, where this is the node: the
// engine takes any name, and the container fails only when it is started.
func appArmorMissing(f facts, sc *runtimeapi.LinuxContainerSecurityContext) bool {
	p, err := appArmorProfile(sc)
	if err != nil || p.GetProfileType() != runtimeapi.SecurityProfile_Localhost {
		return false
	}
	_, elsewhere := host.Cgroups(f.pod.Detail.State.Pid, f.pod.Detail.ID)
	return elsewhere == nil && !host.AppArmorLoaded(p.GetLocalhostRef())
}

func appArmorProfile(sc *runtimeapi.LinuxContainerSecurityContext) (*runtimeapi.SecurityProfile, error) {
	return convert.AppArmorProfile(sc.GetApparmor(), sc.GetApparmorProfile()) //nolint:staticcheck // kubelets send both
}

func seccompProfile(sc *runtimeapi.LinuxContainerSecurityContext) (*runtimeapi.SecurityProfile, error) {
	return convert.SeccompProfile(sc.GetSeccomp(), sc.GetSeccompProfilePath()) //nolint:staticcheck // kubelets before 1.25 send nothing else
}

// gatherUsers reads the image's user files where the engine alone would not
// give the container the groups that are asked for.
func (s *Service) gatherUsers(ctx context.Context, f *facts, sc *runtimeapi.LinuxContainerSecurityContext) error {
	wish, err := convert.Wish(sc, imageUser(f.image))
	if err != nil || !wish.NeedsFiles() || wish.Strict && wish.Name == "" {
		return err
	}
	f.passwd, f.group, err = s.users.ofImage(ctx, f.image)
	return err
}

func imageUser(i image.InspectResponse) string {
	if i.Config == nil {
		return ""
	}
	return i.Config.User
}

// allowedScore knows that the host forbids negative scores from the pod's own
// sandbox: crishim always asks for one there, so a sandbox that runs without
// one was refused it. A container's score cannot be changed after creation.
func (s *Service) allowedScore(f facts, wanted int) int {
	own := f.pod.Detail.Config.Labels[state.LabelOwnName] != ""
	if wanted < 0 && own && f.pod.Detail.HostConfig.OomScoreAdj >= 0 {
		return 0
	}
	return s.oom.Allowed(wanted)
}

// speaks reports whether the engine's API is at least of that version.
func (f facts) speaks(version string) bool { return versions.GreaterThanOrEqualTo(f.api, version) }

// infoFresh is how long the engine's account of itself is good for. Only a
// restart of the engine changes what is looked at here.
const infoFresh = time.Minute

// infoCache keeps that account: asking costs more than creating a container.
type infoCache struct {
	engine Engine
	now    func() time.Time

	mu   sync.Mutex // guards info and at
	info system.Info
	at   time.Time
}

func (c *infoCache) get(ctx context.Context) (system.Info, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && c.now().Sub(c.at) < infoFresh {
		return c.info, nil
	}
	info, err := c.engine.Info(ctx)
	if err != nil {
		return info, fmt.Errorf("ask the docker engine about itself: %w", err)
	}
	c.info, c.at = info, c.now()
	return info, nil
}

// needsInfo reports whether a plan depends on that account: most do not when a
// person writes the config, all do when a kubelet does.
func needsInfo(r *runtimeapi.CreateContainerRequest) bool {
	sc, limits := r.GetConfig().GetLinux().GetSecurityContext(), r.GetConfig().GetLinux().GetResources()
	const localhost = runtimeapi.SecurityProfile_Localhost
	return r.GetSandboxConfig().GetLinux().GetCgroupParent() != "" ||
		len(limits.GetUnified())+len(limits.GetHugepageLimits()) > 0 ||
		slices.ContainsFunc(r.GetConfig().GetMounts(), (*runtimeapi.Mount).GetSelinuxRelabel) ||
		sc.GetSeccomp().GetProfileType() == localhost || sc.GetApparmor().GetProfileType() == localhost ||
		sc.GetApparmorProfile() != "" || sc.GetSeccompProfilePath() != "" //nolint:staticcheck // old kubelets send them
}
