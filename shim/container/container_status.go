package container

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/state"
)

// ContainerStatus describes one container.
func (s *Service) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	m, err := state.FindContainer(ctx, s.engine, r.GetContainerId())
	if err != nil {
		return nil, err
	}
	status, err := s.status(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", m.Detail.ID, err)
	}
	resp := &runtimeapi.ContainerStatusResponse{Status: status}
	if r.GetVerbose() {
		resp.Info, err = verbose(m)
	}
	return resp, err
}

func (s *Service) status(ctx context.Context, m state.FoundContainer) (*runtimeapi.ContainerStatus, error) {
	run, err := convert.Run(m.Detail.Created, m.Detail.State)
	if err != nil {
		return nil, err
	}
	if run.State == runtimeapi.ContainerState_CONTAINER_EXITED && m.Lived() && s.logs.Unfinished(ctx, m.Detail.ID) {
		run = convert.RunState{State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: run.CreatedAt, StartedAt: run.StartedAt}
	}
	img, err := s.imageOf(ctx, m)
	if err != nil {
		return nil, err
	}
	noted, err := notedLimits(m.Detail.Config.Labels)
	if err != nil {
		s.log.Warn("a container's limits cannot be read", "id", m.Detail.ID, "err", err)
	}
	return &runtimeapi.ContainerStatus{
		Id:          m.Detail.ID,
		Metadata:    m.Metadata,
		State:       run.State,
		CreatedAt:   createdAt(m.Created, run.CreatedAt),
		StartedAt:   run.StartedAt,
		FinishedAt:  run.FinishedAt,
		ExitCode:    run.ExitCode,
		Reason:      run.Reason,
		Message:     run.Description,
		Image:       &runtimeapi.ImageSpec{Image: statusImage(m, img), UserSpecifiedImage: m.Image},
		ImageRef:    convert.ImageRef(m.Detail.Image, img.RepoDigests),
		ImageId:     m.Detail.Image,
		Labels:      m.Labels,
		Annotations: m.Annotations,
		Mounts:      append(convert.CRIMounts(m.Detail.Mounts, m.Detail.HostConfig), imageMounts(m.Detail.Config.Labels)...),
		LogPath:     m.LogPath,
		Resources:   &runtimeapi.ContainerResources{Linux: convert.CRIResources(m.Detail.HostConfig, noted.resources())},
		User:        s.user(ctx, m),
		StopSignal:  convert.Signal(m.Detail.Config.StopSignal),
	}, nil
}

// imageOf is the container's image, empty where it has been removed.
func (s *Service) imageOf(ctx context.Context, m state.FoundContainer) (image.InspectResponse, error) {
	i, err := s.engine.ImageInspect(ctx, m.Detail.Image)
	if errdefs.IsNotFound(err) {
		return image.InspectResponse{}, nil
	}
	if err != nil {
		return i, fmt.Errorf("image %s: %w", m.Detail.Image, err)
	}
	return i, nil
}

// statusImage is the image as it was asked for, else its first tag.
func statusImage(m state.FoundContainer, i image.InspectResponse) string {
	if m.Image != "" {
		return m.Image
	}
	if tags := convert.ImageDetails(i).GetRepoTags(); len(tags) > 0 {
		return tags[0]
	}
	return m.Detail.Config.Image
}

// user is the identity of the container's first process. It is left out where
// it cannot be told; that is no reason to have no status.
func (s *Service) user(ctx context.Context, m state.FoundContainer) *runtimeapi.ContainerUser {
	passwd, group, err := s.users.ofContainer(ctx, m.Detail.ID, m.Detail.Image, m.Detail.GraphDriver)
	if err != nil {
		s.log.Info("the users of an image cannot be read", "id", m.Detail.ID, "err", err)
		return nil
	}
	user, err := convert.ContainerUser(m.Detail.Config.User, m.Detail.HostConfig.GroupAdd, passwd, group)
	if err != nil {
		s.log.Info("a container's user cannot be told", "id", m.Detail.ID, "err", err)
		return nil
	}
	return user
}

// verbose is what ContainerStatus adds when asked for everything. The key
// "info" has the shape of containerd's, so that tools written for it find the
// pid and the process; "sandboxID" and "pid" stand alone as in cri-dockerd.
func verbose(m state.FoundContainer) (map[string]string, error) {
	info := map[string]any{
		"sandboxID":   m.SandboxID,
		"pid":         m.Detail.State.Pid,
		"removing":    m.Detail.State.Status == container.StateRemoving,
		"snapshotter": m.Detail.Driver,
		"runtimeType": m.Detail.HostConfig.Runtime,
		"logPath":     m.Detail.LogPath,
		"engineName":  m.Detail.Name,
		"runtimeSpec": runtimeSpec(m),
	}
	out := map[string]string{}
	for key, value := range map[string]any{"info": info, "sandboxID": m.SandboxID, "pid": m.Detail.State.Pid} {
		b, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", m.Detail.ID, err)
		}
		out[key] = string(b)
	}
	return out, nil
}

// runtimeSpec has the form of an OCI runtime specification, as far as the
// engine tells what went into it.
func runtimeSpec(m state.FoundContainer) map[string]any {
	h := m.Detail.HostConfig
	return map[string]any{
		"hostname": m.Detail.Config.Hostname,
		"process": map[string]any{
			"terminal":        m.Detail.Config.Tty,
			"user":            map[string]any{"username": m.Detail.Config.User},
			"args":            append([]string{m.Detail.Path}, m.Detail.Args...),
			"env":             m.Detail.Config.Env,
			"cwd":             m.Detail.Config.WorkingDir,
			"apparmorProfile": m.Detail.AppArmorProfile,
			"selinuxLabel":    m.Detail.ProcessLabel,
		},
		"mounts":      specMounts(m.Detail.Mounts),
		"annotations": m.Annotations,
		"root":        map[string]any{"readonly": h.ReadonlyRootfs},
		"linux": map[string]any{
			"cgroupsPath":   h.CgroupParent,
			"maskedPaths":   h.MaskedPaths,
			"readonlyPaths": h.ReadonlyPaths,
			"resources":     h.Resources,
		},
	}
}

func specMounts(points []container.MountPoint) []map[string]any {
	var out []map[string]any
	for _, p := range points {
		options := []string{"rbind", "rw"}
		if !p.RW {
			options[1] = "ro"
		}
		if p.Propagation != "" {
			options = append(options, string(p.Propagation))
		}
		out = append(out, map[string]any{
			"destination": p.Destination, "source": p.Source, "type": string(p.Type), "options": options,
		})
	}
	return out
}
