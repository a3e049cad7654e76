package container

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/state"
)

func (s *Service) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	if err := validate(r); err != nil {
		return nil, fmt.Errorf("create container: %w", err)
	}
	inFlight, done := s.pending.begin(r)
	defer done()
	id, err := s.create(ctx, r, inFlight)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", r.GetConfig().GetMetadata().GetName(), err)
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// ownerOf returns the owner of a temporary container, which must not outlive the command that creates it, and calls
// NoteTemporary. For other containers it returns "".
func (s *Service) ownerOf(annotations map[string]string) (string, error) {
	if _, temporary := annotations[api.AnnotationTemporary]; !temporary || s.NoteTemporary == nil {
		return "", nil
	}
	if err := s.NoteTemporary(); err != nil {
		return "", fmt.Errorf("note a temporary container: %w", err)
	}
	return s.users.owner, nil
}

// create creates the engine container. It fails if the container exists and was started, or if a concurrent request has
// created it. A container that was never started is left over from an earlier request and is replaced. The same name in
// an older sandbox does not conflict.
func (s *Service) create(ctx context.Context, r *runtimeapi.CreateContainerRequest, same *inFlight) (string, error) {
	f, err := s.gather(ctx, r)
	if err != nil {
		return "", err
	}
	p, err := makePlan(r, f)
	if err != nil {
		return "", err
	}
	unlock, err := s.creating.Lock(ctx, p.Name)
	if err != nil {
		return "", err
	}
	defer unlock()
	created, err := lifecycle.Create(ctx, s.Engine, p, func(holder container.InspectResponse) lifecycle.Holder {
		have, ok := state.DecodeContainer(holder.Name, holder.Config.Labels)
		switch {
		case !ok || have.SandboxID != f.pod.Detail.ID || !proto.Equal(have.Metadata, r.GetConfig().GetMetadata()):
			return lifecycle.Foreign
		case holder.State.Status == container.StateCreated && holder.ID != same.created:
			return lifecycle.Stale
		}
		return lifecycle.InUse
	})
	if err != nil {
		return "", err
	}
	if err := s.checkWarnings(created.Warnings, p.Host.Resources, created.ID); err != nil {
		cleanup, cancel := lifecycle.CleanupContext(ctx)
		defer cancel()
		return "", errors.Join(err, lifecycle.Remove(cleanup, s.Engine, created.ID))
	}
	same.created = created.ID
	return created.ID, nil
}

// pending counts the requests in flight for each container and holds the id of the created container, so that create
// does not mistake a concurrent request's container for a leftover.
type pending struct {
	mu    sync.Mutex
	byKey map[string]*inFlight
}

type inFlight struct {
	requests int
	created  string // id; guarded by the lock of the container's name
}

func (p *pending) begin(r *runtimeapi.CreateContainerRequest) (same *inFlight, done func()) {
	m := r.GetConfig().GetMetadata()
	key := fmt.Sprintf("%s/%s/%d", r.GetPodSandboxId(), m.GetName(), m.GetAttempt())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKey == nil {
		p.byKey = map[string]*inFlight{}
	}
	f := p.byKey[key]
	if f == nil {
		f = &inFlight{}
		p.byKey[key] = f
	}
	f.requests++
	return f, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if f.requests--; f.requests == 0 {
			delete(p.byKey, key)
		}
	}
}

const maxName = 253

func validate(r *runtimeapi.CreateContainerRequest) error {
	c, logDir := r.GetConfig(), r.GetSandboxConfig().GetLogDirectory()
	switch {
	case r.GetPodSandboxId() == "":
		return invalid("pod_sandbox_id is empty")
	case c == nil:
		return invalid("config is missing")
	case c.GetMetadata().GetName() == "":
		return invalid("config.metadata.name is empty")
	case len(c.GetMetadata().GetName()) > maxName:
		return invalid("the container's name has %d bytes, more than %d", len(c.GetMetadata().GetName()), maxName)
	case c.GetImage().GetImage() == "":
		return invalid("config.image.image is empty")
	case c.GetWindows() != nil:
		return invalid("config.windows is set, but containers are Linux containers")
	case c.GetWorkingDir() != "" && !path.IsAbs(c.GetWorkingDir()):
		return invalid("working directory %q is not absolute", c.GetWorkingDir())
	case c.GetLogPath() != "" && logDir != "" && !path.IsAbs(logDir):
		return invalid("log directory %q is not absolute", logDir)
	case !isBelow(c.GetLogPath()):
		return invalid("log path %q leaves the pod's log directory", c.GetLogPath())
	case strings.ContainsRune(c.GetLogPath(), 0):
		return invalid("log path %q holds a NUL byte", c.GetLogPath())
	}
	if err := validateMounts(c.GetMounts()); err != nil {
		return err
	}
	_, err := convert.RequestedUser(c.GetLinux().GetSecurityContext(), "")
	return err
}

func validateMounts(ms []*runtimeapi.Mount) error {
	for _, m := range ms {
		isImage := m.GetImage().GetImage() != ""
		switch {
		case isImage && m.GetHostPath() != "":
			return invalid("mount %q has both an image and a host path", m.GetContainerPath())
		case isImage && !m.GetReadonly():
			return invalid("mount %q: an image can only be mounted read-only, set readonly", m.GetContainerPath())
		case isImage && m.GetPropagation() != runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
			return invalid("mount %q: an image has no mounts that could propagate, leave propagation private", m.GetContainerPath())
		case isImage && m.GetContainerPath() == "":
			return invalid("the mount of image %q has no container path", m.GetImage().GetImage())
		case m.GetImageSubPath() != "" && !isImage:
			return invalid("mount %q has an image_sub_path without an image", m.GetContainerPath())
		case !isBelow(m.GetImageSubPath()):
			return invalid("image_sub_path %q leaves the image", m.GetImageSubPath())
		case !plainName(m.GetImageSubPath()):
			return invalid(`image_sub_path %q has a control character or one of , : \ " in it`, m.GetImageSubPath())
		}
	}
	return nil
}

func isBelow(p string) bool {
	return p == "" || filepath.IsLocal(p) && path.Clean(p) != "."
}

func invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, errdefs.ErrInvalidArgument)...)
}

func unable(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, errdefs.ErrNotImplemented)...)
}

type facts struct {
	api      string // API version negotiated with the engine
	info     system.Info
	pod      state.FoundSandbox
	image    image.InspectResponse
	mounted  map[string]image.InspectResponse // images of image mounts, by the requested reference
	target   string                           // id of the container whose PID namespace is joined
	seccomp  []byte                           // content of a localhost profile
	passwd   []byte                           // the image's user files, if needed
	group    []byte
	known    []string // capabilities that replace ALL; nil: the engine expands ALL
	unloaded bool     // the requested AppArmor profile is not loaded
	oomScore int      // the requested score; 0 instead of a negative score that the host forbids
	owner    string   // owner of a temporary container, otherwise ""; see ownerOf
	now      time.Time
}

func (f facts) speaks(version string) bool { return versions.GreaterThanOrEqualTo(f.api, version) }

func (s *Service) gather(ctx context.Context, r *runtimeapi.CreateContainerRequest) (f facts, err error) {
	f.now = time.Now()
	if f.owner, err = s.ownerOf(r.GetConfig().GetAnnotations()); err != nil {
		return f, err
	}
	if f.pod, err = state.FindSandbox(ctx, s.Engine, r.GetPodSandboxId()); err != nil {
		return f, err
	}
	f.api = s.Engine.ClientVersion() // known after a call
	if !f.pod.Detail.State.Running {
		return f, fmt.Errorf("pod sandbox %s is not running: %w", r.GetPodSandboxId(), errdefs.ErrFailedPrecondition)
	}
	if needsInfo(r) {
		if f.info, err = s.info.get(ctx); err != nil {
			return f, err
		}
	}
	if f.image, err = s.inspectImage(ctx, r.GetConfig().GetImage().GetImage()); err != nil {
		return f, err
	}
	if err := s.gatherMounted(ctx, &f, r.GetConfig().GetMounts()); err != nil {
		return f, err
	}
	sc := r.GetConfig().GetLinux().GetSecurityContext()
	if err := s.gatherTarget(ctx, &f, sc.GetNamespaceOptions()); err != nil {
		return f, err
	}
	if err := gatherProfiles(&f, sc); err != nil {
		return f, err
	}
	// Engines since API 1.42 expand ALL to the capabilities that they can grant.
	if !f.speaks("1.42") && convert.AllCapabilities(sc.GetCapabilities().GetAddCapabilities()) {
		f.known = slices.DeleteFunc(slices.Clone(s.Capabilities()), func(name string) bool { // engines before 23 do not know these names
			return slices.Contains([]string{"PERFMON", "BPF", "CHECKPOINT_RESTORE"}, name)
		})
	}
	// crishim requests a negative score for each sandbox. If a sandbox runs without one, the host has refused it.
	score := int(r.GetConfig().GetLinux().GetResources().GetOomScoreAdj())
	if own := f.pod.Detail.Config.Labels[state.LabelOwnName] != ""; score >= 0 || !own || f.pod.Detail.HostConfig.OomScoreAdj < 0 {
		f.oomScore = s.OOM.Allowed(score)
	}
	// The plan resolves the groups with the image's user files if the engine would not set exactly the requested groups.
	user, err := convert.RequestedUser(sc, imageUser(f.image))
	if err == nil && user.NeedsFiles() && (!user.Strict || user.Name != "") {
		f.passwd, f.group, err = s.users.ofImage(ctx, f.image)
	}
	return f, err
}

func (s *Service) inspectImage(ctx context.Context, ref string) (image.InspectResponse, error) {
	i, err := s.Engine.ImageInspect(ctx, ref)
	switch {
	case errdefs.IsNotFound(err):
		return i, fmt.Errorf("no such image %q: %w", ref, errdefs.ErrNotFound)
	case err != nil:
		return i, fmt.Errorf("image %s: %w", ref, err)
	case i.ID == "":
		return i, fmt.Errorf("image %s: the engine gave no id: %w", ref, errdefs.ErrInternal)
	}
	return i, nil
}

func imageUser(i image.InspectResponse) string {
	if i.Config == nil {
		return ""
	}
	return i.Config.User
}

// gatherMounted finds the images to mount. Some engines accept a missing subpath, so it is checked here.
func (s *Service) gatherMounted(ctx context.Context, f *facts, ms []*runtimeapi.Mount) error {
	f.mounted = map[string]image.InspectResponse{}
	for _, m := range ms {
		ref, sub := m.GetImage().GetImage(), m.GetImageSubPath()
		if ref == "" {
			continue
		}
		i, err := s.inspectImage(ctx, ref)
		if err == nil && sub != "" && f.speaks(imageMountAPI) {
			err = inImage(ctx, s.Engine, s.users.owner, i.ID, func(id string) error {
				_, err := s.Engine.ContainerStatPath(ctx, id, path.Join("/", sub))
				if errdefs.IsNotFound(err) {
					return invalid("%s does not exist in the image", sub)
				}
				return err
			})
		}
		if err != nil {
			return fmt.Errorf("ImageVolumeMountFailed: mount %q: %w", m.GetContainerPath(), err)
		}
		f.mounted[ref] = i
	}
	return nil
}

// gatherTarget finds the container whose PID namespace is joined. It must run in the same pod and have its own PID
// namespace.
func (s *Service) gatherTarget(ctx context.Context, f *facts, o *runtimeapi.NamespaceOption) error {
	if o.GetPid() != runtimeapi.NamespaceMode_TARGET || o.GetTargetId() == "" {
		return nil
	}
	m, err := state.FindContainer(ctx, s.Engine, o.GetTargetId())
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

// gatherProfiles reads a seccomp profile and checks that the kernel has an AppArmor profile. The engine accepts any
// profile name and fails only at the start of the container.
func gatherProfiles(f *facts, sc *runtimeapi.LinuxContainerSecurityContext) error {
	p, err := seccompProfile(sc)
	if err != nil {
		return err
	}
	if !sc.GetPrivileged() && p.GetProfileType() == runtimeapi.SecurityProfile_Localhost {
		if f.seccomp, err = bounded.ReadRegular(p.GetLocalhostRef(), convert.MaxSeccomp); err != nil {
			return fmt.Errorf("seccomp profile: %w: %w", err, errdefs.ErrInvalidArgument)
		}
	}
	if p, err := appArmorProfile(sc); err == nil && p.GetProfileType() == runtimeapi.SecurityProfile_Localhost {
		_, elsewhere := host.Cgroups(f.pod.Detail.State.Pid, f.pod.Detail.ID)
		f.unloaded = elsewhere == nil && !host.AppArmorLoaded(p.GetLocalhostRef())
	}
	return nil
}

func appArmorProfile(sc *runtimeapi.LinuxContainerSecurityContext) (*runtimeapi.SecurityProfile, error) {
	return convert.AppArmorProfile(sc.GetApparmor(), sc.GetApparmorProfile()) //nolint:staticcheck // kubelets send both
}

func seccompProfile(sc *runtimeapi.LinuxContainerSecurityContext) (*runtimeapi.SecurityProfile, error) {
	return convert.SeccompProfile(sc.GetSeccomp(), sc.GetSeccompProfilePath()) //nolint:staticcheck // kubelets before 1.25 send only this
}

// needsInfo reports whether the plan depends on the engine's Info. The result is true for all requests of a kubelet, but
// false for most containers that users create.
func needsInfo(r *runtimeapi.CreateContainerRequest) bool {
	sc, limits := r.GetConfig().GetLinux().GetSecurityContext(), r.GetConfig().GetLinux().GetResources()
	cdi, _ := convert.CDIDevices(r.GetConfig().GetCDIDevices(), r.GetConfig().GetAnnotations()) // makePlan returns the error
	const localhost = runtimeapi.SecurityProfile_Localhost
	return r.GetSandboxConfig().GetLinux().GetCgroupParent() != "" ||
		len(limits.GetUnified())+len(limits.GetHugepageLimits())+len(cdi) > 0 ||
		slices.ContainsFunc(r.GetConfig().GetMounts(), (*runtimeapi.Mount).GetSelinuxRelabel) ||
		sc.GetSeccomp().GetProfileType() == localhost || sc.GetApparmor().GetProfileType() == localhost ||
		sc.GetApparmorProfile() != "" || sc.GetSeccompProfilePath() != "" //nolint:staticcheck // old kubelets send them
}

// checkWarnings returns an error if the engine warns that it has discarded a requested limit. CPU shares are exempt,
// because they are only a weight. A discarded swap limit is an error only if it differs from the memory limit, because
// convert.Resources makes both equal by default. Other warnings are logged.
func (s *Service) checkWarnings(warnings []string, asked container.Resources, id string) error {
	for _, w := range warnings {
		switch {
		case strings.Contains(w, "Shares discarded"):
		case strings.Contains(w, "discarded"), strings.Contains(w, "without swap") && asked.MemorySwap != asked.Memory:
			return unable("the engine cannot set a limit that is asked for: %s", strings.TrimSuffix(w, "."))
		}
		s.Log.Info("the engine warns about a container", "id", id, "warning", w)
	}
	return nil
}
