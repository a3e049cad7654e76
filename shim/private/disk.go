package private

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/shim/state"
)

// ImageUsage reports what images take of the disk.
func (s *Service) ImageUsage(ctx context.Context, r *api.ImageUsageRequest) (*api.ImageUsageResponse, error) {
	u, err := s.Images.Usage(ctx, r.GetTimes())
	if err != nil {
		return nil, err
	}
	answer := &api.ImageUsageResponse{LayerSizes: u.Sizes}
	switch {
	case u.Own:
		answer.Layers = api.ImageUsageResponse_OWN
	case u.Merged:
		answer.Layers = api.ImageUsageResponse_MERGED
	}
	for _, i := range u.Images {
		one := &api.ImageUsage{Id: i.ID, Layers: i.Layers, Used: i.Used}
		if r.GetTimes() && i.Came.Unix() > 0 {
			one.CameUnixNano = i.Came.UnixNano()
		}
		answer.Images = append(answer.Images, one)
	}
	return answer, nil
}

// DiskUsage reports what containers, volumes and the build cache take. Engines before 23 answer
// for images, too, whatever they are asked for.
func (s *Service) DiskUsage(ctx context.Context, _ *api.DiskUsageRequest) (*api.DiskUsageResponse, error) {
	info, err := s.Engine.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the docker engine for its root directory: %w", err)
	}
	usage, err := s.askUsage(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the docker engine for its disk usage: %w", err)
	}
	answer := &api.DiskUsageResponse{}
	for _, c := range usage.Containers {
		if _, sandbox := state.DecodeSandbox(state.ListedName(*c), c.Labels); sandbox {
			continue // of a pause container, which writes nothing
		}
		one := &api.DiskObject{Id: c.ID, Name: strings.TrimPrefix(state.ListedName(*c), "/"), Size: c.SizeRw, Used: c.State != container.StateExited && c.State != container.StateDead}
		_, one.InPod = state.DecodeContainer(state.ListedName(*c), c.Labels)
		one.LogSize = logSize(filepath.Join(info.DockerRootDir, "containers", filepath.Base(c.ID)))
		answer.Containers = append(answer.Containers, one)
	}
	for _, v := range usage.Volumes {
		one := &api.DiskObject{Id: v.Name, Name: v.Name, Size: -1, Used: true}
		if v.UsageData != nil {
			one.Size, one.Used = v.UsageData.Size, v.UsageData.RefCount != 0
		}
		answer.Volumes = append(answer.Volumes, one)
	}
	for _, b := range usage.BuildCache {
		if !b.Shared {
			answer.BuildCache = append(answer.BuildCache, &api.DiskObject{Id: b.ID, Name: b.Description, Size: b.Size, Used: b.InUse})
		}
	}
	return answer, nil
}

// busyPause is how long an engine has for what another client has asked it.
const busyPause = 200 * time.Millisecond

// askUsage asks the engine. Those before 23 refuse while they answer the same to another client.
func (s *Service) askUsage(ctx context.Context) (types.DiskUsage, error) {
	for {
		usage, err := s.Engine.DiskUsage(ctx, types.DiskUsageOptions{Types: []types.DiskUsageObject{types.ContainerObject, types.VolumeObject, types.BuildCacheObject}})
		if err == nil || !strings.Contains(err.Error(), "disk usage operation is already running") {
			return usage, err
		}
		select {
		case <-time.After(busyPause):
		case <-ctx.Done():
			return usage, err
		}
	}
}

// logSize sums the engine's log files of a container in its directory, rotated ones too; negative where
// there are none, such as on another host or with another log driver.
func logSize(dir string) int64 {
	size := int64(-1)
	for _, at := range []string{dir, filepath.Join(dir, "local-logs")} {
		files, err := os.ReadDir(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for _, f := range files {
			info, err := f.Info()
			if err == nil && info.Mode().IsRegular() && strings.Contains(f.Name(), ".log") {
				size = max(size, 0) + info.Size()
			}
		}
	}
	return size
}
