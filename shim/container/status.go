package container

import (
	"cmp"
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

func (s *Service) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	m, err := state.FindContainer(ctx, s.Engine, r.GetContainerId())
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
	if run.State == runtimeapi.ContainerState_CONTAINER_EXITED && m.Lived() && s.Logs.Unfinished(ctx, m.Detail.ID) {
		run = convert.RunState{State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: run.CreatedAt, StartedAt: run.StartedAt}
	}
	img, err := s.imageDetails(ctx, m.Detail.Image)
	if errdefs.IsNotFound(err) {
		img = image.InspectResponse{}
	} else if err != nil {
		return nil, fmt.Errorf("image %s: %w", m.Detail.Image, err)
	}
	name := m.Image // as requested, otherwise the first tag
	if tags := convert.ImageDetails(img).GetRepoTags(); name == "" && len(tags) > 0 {
		name = tags[0]
	}
	extra, err := readLimits(m.Limits)
	if err != nil {
		s.Log.Warn("a container's limits cannot be read", "id", m.Detail.ID, "err", err)
	}
	// A container without a recorded creation time was created by another shim. Its annotations include the image's.
	if m.Created.IsZero() {
		m.Annotations = state.WithoutImageAnnotations(m.Annotations, state.ImageLabels(img))
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
		Image:       &runtimeapi.ImageSpec{Image: cmp.Or(name, m.Detail.Config.Image), UserSpecifiedImage: m.Image},
		ImageRef:    convert.ImageRef(m.Detail.Image, m.Image, img.RepoDigests),
		ImageId:     m.Detail.Image,
		Labels:      m.Labels,
		Annotations: notePaused(m.Annotations, m.Detail.State.Paused),
		Mounts:      append(convert.CRIMounts(m.Detail.Mounts, m.Detail.HostConfig), imageMounts(m.ImageMounts)...),
		LogPath:     m.LogPath,
		Resources:   &runtimeapi.ContainerResources{Linux: convert.CRIResources(m.Detail.HostConfig, extra.Hugepages, extra.Unified)},
		User:        s.user(ctx, m),
		StopSignal:  convert.Signal(m.Detail.Config.StopSignal),
	}, nil
}

// imageDetails shares one inspection among concurrent calls for the same image, because a client that lists containers
// requests many statuses at once. If the shared inspection fails, each call inspects the image itself: the failure may
// come from the cancellation of another request.
func (s *Service) imageDetails(ctx context.Context, id string) (image.InspectResponse, error) {
	select {
	case answer := <-s.inspecting.DoChan(id, func() (any, error) { return s.Engine.ImageInspect(ctx, id) }):
		if answer.Err != nil && answer.Shared {
			return s.Engine.ImageInspect(ctx, id)
		}
		img, _ := answer.Val.(image.InspectResponse)
		return img, answer.Err
	case <-ctx.Done():
		return image.InspectResponse{}, ctx.Err()
	}
}

// user returns nil if the user of the first process is unknown.
func (s *Service) user(ctx context.Context, m state.FoundContainer) *runtimeapi.ContainerUser {
	// The image's files are preferred: changes in the container's own layer are newer than its first process.
	passwd, group, err := s.users.ofContainer(ctx, m.Detail)
	var user *runtimeapi.ContainerUser
	if err == nil {
		user, err = convert.ContainerUser(m.Detail.Config.User, m.Detail.HostConfig.GroupAdd, passwd, group)
	}
	if err != nil {
		s.Log.Info("a container's user is not known", "id", m.Detail.ID, "err", err)
	}
	return user
}

// verbose returns containerd's "info" document, in which tools look up the pid, and cri-dockerd's "sandboxID" and
// "pid".
func verbose(m state.FoundContainer) (map[string]string, error) {
	info := map[string]any{
		"sandboxID":   m.SandboxID,
		"pid":         m.Detail.State.Pid,
		"removing":    m.Detail.State.Status == container.StateRemoving,
		"snapshotter": m.Detail.Driver,
		"graphDriver": m.Detail.GraphDriver.Data,
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

// runtimeSpec returns a partial OCI runtime spec. Mounts and limits are omitted, because the container status has them.
func runtimeSpec(m state.FoundContainer) map[string]any {
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
		"annotations": m.Annotations,
	}
}
