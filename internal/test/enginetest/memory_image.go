package enginetest

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/image"

	"github.com/crishim/crishim/shim/docker"
)

type memoryImage struct {
	id   string
	tags []string
}

// AddImage puts an image with these tags into the engine and gives its id.
func (m *Memory) AddImage(tags ...string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.addImage([]byte(strings.Join(tags, " ")), tags)
}

func (m *Memory) addImage(content []byte, tags []string) string {
	sum := sha256.Sum256(content)
	id := "sha256:" + hex.EncodeToString(sum[:])
	for _, other := range m.images { // a name is that of one image
		other.tags = slices.DeleteFunc(other.tags, func(tag string) bool { return slices.Contains(tags, tag) })
	}
	m.images[id] = &memoryImage{id: id, tags: tags}
	m.tellImage(id, events.ActionLoad)
	return id
}

// RemoveImages empties the image store.
func (m *Memory) RemoveImages() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.images)
}

func (m *Memory) findImage(ref string) (*memoryImage, error) {
	for _, i := range m.images {
		if i.id == ref || strings.TrimPrefix(i.id, "sha256:") == ref || slices.Contains(i.tags, ref) || slices.Contains(i.tags, ref+":latest") {
			return i, nil
		}
	}
	return nil, fmt.Errorf("no such image: %s: %w", ref, errdefs.ErrNotFound)
}

// ImageInspect implements the client's method.
func (m *Memory) ImageInspect(ctx context.Context, ref string, _ ...docker.ImageInspectOption) (image.InspectResponse, error) {
	end, err := m.begin(ctx, "ImageInspect")
	if err != nil {
		return image.InspectResponse{}, err
	}
	defer end()
	i, err := m.findImage(ref)
	if err != nil {
		return image.InspectResponse{}, err
	}
	return image.InspectResponse{ID: i.id, RepoTags: slices.Clone(i.tags), Os: "linux", Architecture: "amd64", Size: 1}, nil
}

// ImageLoad implements the client's method for archives with a manifest.json.
func (m *Memory) ImageLoad(ctx context.Context, input io.Reader, _ ...docker.ImageLoadOption) (image.LoadResponse, error) {
	end, err := m.begin(ctx, "ImageLoad")
	if err != nil {
		return image.LoadResponse{}, err
	}
	defer end()
	files, err := unpack(input)
	if err != nil {
		return image.LoadResponse{}, err
	}
	var manifest []struct {
		Config   string
		RepoTags []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		return image.LoadResponse{}, fmt.Errorf("manifest.json: %w: %w", errdefs.ErrInvalidArgument, err)
	}
	for _, one := range manifest {
		m.addImage(files[one.Config], one.RepoTags)
	}
	return image.LoadResponse{Body: io.NopCloser(strings.NewReader(`{"stream":"Loaded image"}`)), JSON: true}, nil
}

func unpack(input io.Reader) (map[string][]byte, error) {
	files := map[string][]byte{}
	for r := tar.NewReader(input); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("image archive: %w: %w", errdefs.ErrInvalidArgument, err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			return nil, fmt.Errorf("image archive: %w", err)
		}
	}
}

// ImagePull implements the client's method: every reference can be pulled but
// those of the registry missing.example.
func (m *Memory) ImagePull(ctx context.Context, ref string, _ image.PullOptions) (io.ReadCloser, error) {
	end, err := m.begin(ctx, "ImagePull")
	if err != nil {
		return nil, err
	}
	defer end()
	if strings.HasPrefix(ref, "missing.example/") {
		return io.NopCloser(strings.NewReader(`{"errorDetail":{"message":"manifest unknown"},"error":"manifest unknown"}`)), nil
	}
	m.addImage([]byte(ref), []string{ref})
	return io.NopCloser(strings.NewReader(`{"status":"Pulling"}{"status":"Done"}`)), nil
}

// ImageTag implements the client's method for ids and names.
func (m *Memory) ImageTag(ctx context.Context, source, target string) error {
	end, err := m.begin(ctx, "ImageTag")
	if err != nil {
		return err
	}
	defer end()
	i, err := m.findImage(source)
	if err != nil {
		return err
	}
	i.tags = append(i.tags, target)
	m.tellImage(i.id, events.ActionTag)
	return nil
}
