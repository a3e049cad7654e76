package container

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/state"
)

func (s *Service) Signal(ctx context.Context, id, signal string) error {
	m, err := state.FindContainer(ctx, s.Engine, id)
	if err == nil {
		err = s.Engine.ContainerKill(ctx, m.Detail.ID, signal)
	}
	if err != nil {
		return fmt.Errorf("signal container: %w", err)
	}
	return nil
}

func (s *Service) Pause(ctx context.Context, id string) error {
	m, err := state.FindContainer(ctx, s.Engine, id)
	switch {
	case err != nil:
	case m.Detail.State.Paused:
		err = fmt.Errorf("it is paused already: %w", errdefs.ErrFailedPrecondition)
	default:
		err = s.Engine.ContainerPause(ctx, m.Detail.ID)
		if err != nil && strings.Contains(err.Error(), "unable to freeze") {
			// runc gives up on a cgroup of version 1 after some tries, and thaws it again.
			err = fmt.Errorf("unable to freeze all its processes in time, as happens on a busy machine; try again: %w", errdefs.ErrAborted)
		}
	}
	if err != nil {
		return fmt.Errorf("pause container: %w", err)
	}
	return nil
}

func (s *Service) Unpause(ctx context.Context, id string) error {
	m, err := state.FindContainer(ctx, s.Engine, id)
	switch {
	case err != nil:
	case !m.Detail.State.Paused:
		err = fmt.Errorf("it is not paused: %w", errdefs.ErrFailedPrecondition)
	default:
		err = s.Engine.ContainerUnpause(ctx, m.Detail.ID)
	}
	if err != nil {
		return fmt.Errorf("unpause container: %w", err)
	}
	return nil
}

// Restart stops and starts a container and keeps its files. In CRI each attempt is a new container; the engine reuses
// the container.
func (s *Service) Restart(ctx context.Context, id string, seconds int64) error {
	if seconds < 0 {
		return fmt.Errorf("restart container: %w", invalid("timeout %d is negative", seconds))
	}
	m, err := state.FindContainer(ctx, s.Engine, id)
	if err == nil {
		_, err = s.runningPod(ctx, m.SandboxID)
	}
	if err != nil {
		return fmt.Errorf("restart container: %w", err)
	}
	if m.Running() {
		if err := lifecycle.Stop(ctx, s.Engine, m.Detail.ID, seconds); err != nil {
			return err
		}
		s.AwaitLog(ctx, m.Detail.ID)
	}
	ctx, cancel := lifecycle.CleanupContext(ctx)
	defer cancel()
	if err := s.start(ctx, m); err != nil {
		return fmt.Errorf("start container %s (%.13s) again: %w", m.Metadata.GetName(), m.Detail.ID, err)
	}
	return nil
}

func (s *Service) runningPod(ctx context.Context, id string) (state.FoundSandbox, error) {
	pod, err := state.FindSandbox(ctx, s.Engine, id)
	if err == nil && !pod.Detail.State.Running {
		err = fmt.Errorf("pod sandbox %s is not running: %w", id, errdefs.ErrFailedPrecondition)
	}
	return pod, err
}

// Copy copies a container to the requested pod, which may be a different pod. The copy has its own name, command and
// terminal, additional labels and optionally another image. It does not get the kubelet's labels and annotations,
// because a kubelet would manage the copy. Files that processes have written are not copied.
func (s *Service) Copy(ctx context.Context, r *api.CopyContainerRequest) (string, error) {
	id, err := s.copied(ctx, r)
	if err != nil {
		return "", fmt.Errorf("copy container: %w", err)
	}
	return id, nil
}

func (s *Service) copied(ctx context.Context, r *api.CopyContainerRequest) (string, error) {
	switch {
	case r.GetName() == "" || len(r.GetName()) > maxName:
		return "", invalid("the copy needs a name of 1 to %d bytes", maxName)
	case strings.ContainsAny(r.GetName(), "/\x00"):
		return "", invalid("the copy's name %q has a slash or a NUL byte in it", r.GetName())
	case len(r.GetCommand()) == 0:
		return "", invalid("the copy needs a command")
	}
	m, err := state.FindContainer(ctx, s.Engine, r.GetContainerId())
	if err != nil {
		return "", err
	}
	pod, err := s.runningPod(ctx, r.GetPodSandboxId())
	if err != nil {
		return "", err
	}
	img, err := s.inspectImage(ctx, cmp.Or(r.GetImage(), m.Detail.Image))
	if err != nil {
		return "", err
	}
	own := state.Container{
		Metadata: &runtimeapi.ContainerMetadata{Name: r.GetName()}, Pod: pod.Metadata, SandboxID: pod.Detail.ID, Image: cmp.Or(r.GetImage(), m.Image), Created: time.Now(),
		Labels: withoutKubelets(m.Labels), Annotations: withoutKubelets(m.Annotations), ImageMounts: m.ImageMounts, Limits: m.Limits,
	}
	maps.Copy(own.Labels, r.GetLabels())
	if r.GetTemporary() {
		own.Annotations[api.AnnotationTemporary] = "true"
	}
	if own.Owner, err = s.ownerOf(own.Annotations); err != nil {
		return "", err
	}
	config, host := *m.Detail.Config, *m.Detail.HostConfig
	if r.GetImage() != "" {
		if err := s.dropImageDefaults(ctx, &config, m.Detail.Image); err != nil {
			return "", err
		}
	}
	config.Labels = state.EncodeContainer(own, state.ImageLabels(img))
	config.Image, config.Entrypoint, config.Cmd = img.ID, r.GetCommand(), nil
	config.Tty, config.OpenStdin, config.StdinOnce = r.GetTty(), r.GetStdin(), r.GetStdin()
	config.AttachStdin, config.AttachStdout, config.AttachStderr = false, false, false
	// These belong to the pod. The engine reports them for each container but rejects them.
	config.Hostname, config.Domainname, config.ExposedPorts, config.MacAddress = "", "", nil, "" //nolint:staticcheck // engines before 25 send it
	join := func(namespace string) string { return strings.Replace(namespace, m.SandboxID, pod.Detail.ID, 1) }
	if host.PidMode.IsContainer() && host.PidMode.Container() != m.SandboxID && pod.Detail.ID != m.SandboxID {
		host.PidMode = "" // the process namespace of a container in another pod
	}
	host.NetworkMode, host.IpcMode = container.NetworkMode(join(string(host.NetworkMode))), container.IpcMode(join(string(host.IpcMode)))
	host.PidMode, host.CgroupParent = container.PidMode(join(string(host.PidMode))), pod.Detail.HostConfig.CgroupParent
	spec := lifecycle.Spec{Name: state.ContainerName(pod.Metadata, own.Metadata), Config: &config, Host: &host}
	created, err := lifecycle.Create(ctx, s.Engine, spec, func(container.InspectResponse) lifecycle.Holder { return lifecycle.InUse })
	return created.ID, err
}

func (s *Service) dropImageDefaults(ctx context.Context, config *container.Config, ref string) error {
	img, err := s.inspectImage(ctx, ref)
	if errdefs.IsNotFound(err) || err == nil && img.Config == nil {
		return nil // the copy keeps all settings: the image was removed, or has no defaults
	}
	if err != nil {
		return err
	}
	dropDefaults(config, &img.Config.ImageConfig)
	return nil
}

// dropDefaults removes settings that equal the image's, because the engine has taken them from there. A numeric user
// stays, because the pod may have set it, and it exists in any image.
func dropDefaults(config *container.Config, img *ocispec.ImageConfig) {
	config.Env = slices.DeleteFunc(slices.Clone(config.Env), func(v string) bool { return slices.Contains(img.Env, v) })
	if config.WorkingDir == img.WorkingDir {
		config.WorkingDir = ""
	}
	if config.StopSignal == img.StopSignal {
		config.StopSignal = ""
	}
	if config.User == img.User && strings.Trim(config.User, "0123456789:") != "" {
		config.User = ""
	}
	config.Volumes = maps.Clone(config.Volumes)
	maps.DeleteFunc(config.Volumes, func(path string, _ struct{}) bool {
		_, own := img.Volumes[path]
		return own
	})
}

// withoutKubelets removes the labels or annotations by which kubelets find their containers.
func withoutKubelets(all map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range all {
		if !strings.HasPrefix(key, "io.kubernetes.") && key != api.AnnotationTemporary {
			kept[key] = value
		}
	}
	return kept
}
