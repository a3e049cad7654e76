package enginetest

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/image"

	"github.com/crishim/crishim/shim/docker"
)

// userFiles are what every image of Memory has below /etc.
var userFiles = map[string]string{
	"/etc/passwd": "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n",
	"/etc/group":  "root:x:0:\nalice:x:1000:\nextra:x:1234:alice\n",
}

// ClientVersion implements the client's method.
func (m *Memory) ClientVersion() string { return m.Version.APIVersion }

// ContainerUpdate implements the client's method for memory and processors.
func (m *Memory) ContainerUpdate(ctx context.Context, id string, u container.UpdateConfig) (container.UpdateResponse, error) {
	end, err := m.begin(ctx, "ContainerUpdate")
	if err != nil {
		return container.UpdateResponse{}, err
	}
	defer end()
	c, err := m.find(id)
	if err != nil {
		return container.UpdateResponse{}, err
	}
	if u.Memory != 0 {
		c.host.Memory = u.Memory
	}
	if u.MemorySwap != 0 {
		c.host.MemorySwap = u.MemorySwap
	}
	if u.CPUShares != 0 {
		c.host.CPUShares = u.CPUShares
	}
	if u.CPUQuota != 0 {
		c.host.CPUQuota = u.CPUQuota
	}
	m.tell(c, events.ActionUpdate)
	return container.UpdateResponse{}, nil
}

// CopyFromContainer implements the client's method for the user files.
func (m *Memory) CopyFromContainer(ctx context.Context, id, name string) (io.ReadCloser, container.PathStat, error) {
	end, err := m.begin(ctx, "CopyFromContainer")
	if err != nil {
		return nil, container.PathStat{}, err
	}
	defer end()
	if _, err := m.find(id); err != nil {
		return nil, container.PathStat{}, err
	}
	content, ok := userFiles[name]
	if !ok {
		return nil, container.PathStat{}, fmt.Errorf("no such file %s: %w", name, errdefs.ErrNotFound)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: path.Base(name), Mode: 0o644, Size: int64(len(content))}); err != nil {
		return nil, container.PathStat{}, err
	}
	if _, err := io.WriteString(w, content); err != nil {
		return nil, container.PathStat{}, err
	}
	return io.NopCloser(&b), container.PathStat{Name: path.Base(name), Size: int64(len(content))}, w.Close()
}

// ContainerStatPath implements the client's method for the user files and their
// directory.
func (m *Memory) ContainerStatPath(ctx context.Context, id, name string) (container.PathStat, error) {
	end, err := m.begin(ctx, "ContainerStatPath")
	if err != nil {
		return container.PathStat{}, err
	}
	defer end()
	if _, err := m.find(id); err != nil {
		return container.PathStat{}, err
	}
	for file := range userFiles {
		if name == file || name == path.Dir(file) {
			return container.PathStat{Name: path.Base(name)}, nil
		}
	}
	return container.PathStat{}, fmt.Errorf("no such file %s: %w", name, errdefs.ErrNotFound)
}

// ImageList implements the client's method.
func (m *Memory) ImageList(ctx context.Context, _ image.ListOptions) ([]image.Summary, error) {
	end, err := m.begin(ctx, "ImageList")
	if err != nil {
		return nil, err
	}
	defer end()
	var out []image.Summary
	for _, i := range m.images {
		out = append(out, image.Summary{ID: i.id, RepoTags: slices.Clone(i.tags), Size: 1})
	}
	return out, nil
}

// ImageRemove implements the client's method for images by id.
func (m *Memory) ImageRemove(ctx context.Context, ref string, _ image.RemoveOptions) ([]image.DeleteResponse, error) {
	end, err := m.begin(ctx, "ImageRemove")
	if err != nil {
		return nil, err
	}
	defer end()
	i, err := m.findImage(ref)
	if err != nil {
		return nil, err
	}
	delete(m.images, i.id)
	m.tellImage(i.id, events.ActionDelete)
	return []image.DeleteResponse{{Deleted: i.id}}, nil
}

// ImageHistory implements the client's method: nothing is known.
func (m *Memory) ImageHistory(ctx context.Context, _ string, _ ...docker.ImageHistoryOption) ([]image.HistoryResponseItem, error) {
	end, err := m.begin(ctx, "ImageHistory")
	if err != nil {
		return nil, err
	}
	defer end()
	return nil, nil
}

// DiskUsage implements the client's method for images, of one byte each.
func (m *Memory) DiskUsage(ctx context.Context, _ types.DiskUsageOptions) (types.DiskUsage, error) {
	end, err := m.begin(ctx, "DiskUsage")
	if err != nil {
		return types.DiskUsage{}, err
	}
	defer end()
	return types.DiskUsage{LayersSize: int64(len(m.images))}, nil
}
