package container

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
)

// ContainerStatus describes one container.
func (s *Service) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	m, err := s.find(ctx, r.GetContainerId())
	if err != nil {
		return nil, err
	}
	status, err := s.status(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", m.c.ID, err)
	}
	resp := &runtimeapi.ContainerStatusResponse{Status: status}
	if r.GetVerbose() {
		resp.Info, err = verbose(m)
	}
	return resp, err
}

func (s *Service) status(ctx context.Context, m member) (*runtimeapi.ContainerStatus, error) {
	run, err := convert.Run(m.c.Created, m.c.State)
	if err != nil {
		return nil, err
	}
	if run.State == runtimeapi.ContainerState_CONTAINER_EXITED && lived(m.c) && s.logs.Unfinished(ctx, m.c.ID) {
		run = convert.RunState{State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: run.CreatedAt, StartedAt: run.StartedAt}
	}
	img, err := s.imageOf(ctx, m)
	if err != nil {
		return nil, err
	}
	noted, err := notedLimits(m.c.Config.Labels)
	if err != nil {
		s.log.Warn("a container's limits cannot be read", "id", m.c.ID, "err", err)
	}
	return &runtimeapi.ContainerStatus{
		Id:          m.c.ID,
		Metadata:    m.Metadata,
		State:       run.State,
		CreatedAt:   createdAt(m.Created, run.CreatedAt),
		StartedAt:   run.StartedAt,
		FinishedAt:  run.FinishedAt,
		ExitCode:    run.ExitCode,
		Reason:      run.Reason,
		Message:     run.Description,
		Image:       &runtimeapi.ImageSpec{Image: statusImage(m, img), UserSpecifiedImage: m.Image},
		ImageRef:    convert.ImageRef(m.c.Image, img.RepoDigests),
		ImageId:     m.c.Image,
		Labels:      m.Labels,
		Annotations: m.Annotations,
		Mounts:      append(convert.CRIMounts(m.c.Mounts, m.c.HostConfig), imageMounts(m.c.Config.Labels)...),
		LogPath:     m.LogPath,
		Resources:   &runtimeapi.ContainerResources{Linux: convert.CRIResources(m.c.HostConfig, noted.resources())},
		User:        s.user(ctx, m),
		StopSignal:  convert.Signal(m.c.Config.StopSignal),
	}, nil
}

// imageOf is the container's image, empty where it has been removed.
func (s *Service) imageOf(ctx context.Context, m member) (image.InspectResponse, error) {
	i, err := s.engine.ImageInspect(ctx, m.c.Image)
	if errdefs.IsNotFound(err) {
		return image.InspectResponse{}, nil
	}
	if err != nil {
		return i, fmt.Errorf("image %s: %w", m.c.Image, err)
	}
	return i, nil
}

// statusImage is the image as it was asked for, else its first tag.
func statusImage(m member, i image.InspectResponse) string {
	if m.Image != "" {
		return m.Image
	}
	if tags := convert.ImageDetails(i).GetRepoTags(); len(tags) > 0 {
		return tags[0]
	}
	return m.c.Config.Image
}

// user is the identity of the container's first process. It is left out where
// it cannot be told; that is no reason to have no status.
func (s *Service) user(ctx context.Context, m member) *runtimeapi.ContainerUser {
	if m.c.HostConfig == nil {
		return nil
	}
	passwd, group, err := s.users.ofContainer(ctx, m.c.ID, m.c.Image, m.c.GraphDriver)
	if err != nil {
		s.log.Info("the users of an image cannot be read", "id", m.c.ID, "err", err)
		return nil
	}
	user, err := convert.ContainerUser(m.c.Config.User, m.c.HostConfig.GroupAdd, passwd, group)
	if err != nil {
		s.log.Info("a container's user cannot be told", "id", m.c.ID, "err", err)
		return nil
	}
	return user
}
