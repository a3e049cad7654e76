package enginetest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/image"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crishim/crishim/shim/docker"
)

type memoryImage struct {
	id     string
	tags   []string
	labels map[string]string
	config ocispec.Image // of a loaded image
	save   []byte        // archive that it was loaded from; may be nil
}

func (m *Memory) AddImage(tags ...string) (id string) {
	m.locked(func() { id = m.addImage([]byte(strings.Join(tags, " ")), tags) })
	return id
}

// LabelImage sets labels of an image. Containers inherit them.
func (m *Memory) LabelImage(ref string, labels map[string]string) {
	m.locked(func() {
		if i, err := m.findImage(ref); err == nil {
			i.labels = labels
		}
	})
}

func (m *Memory) addImage(content []byte, tags []string) string {
	sum := sha256.Sum256(content)
	id := "sha256:" + hex.EncodeToString(sum[:])
	for _, other := range m.images { // a name belongs to a single image
		other.tags = slices.DeleteFunc(other.tags, func(tag string) bool { return slices.Contains(tags, tag) })
	}
	m.images[id] = &memoryImage{id: id, tags: tags}
	m.event(events.ImageEventType, events.ActionLoad, id, nil)
	return id
}

func (m *Memory) findImage(ref string) (*memoryImage, error) {
	for _, i := range m.images {
		if i.id == ref || strings.TrimPrefix(i.id, "sha256:") == ref || slices.Contains(i.tags, ref) || slices.Contains(i.tags, ref+":latest") {
			return i, nil
		}
	}
	return nil, fmt.Errorf("no such image: %s: %w", ref, errdefs.ErrNotFound)
}

func (m *Memory) ImageInspect(ctx context.Context, ref string, _ ...docker.ImageInspectOption) (image.InspectResponse, error) {
	return call(ctx, m, "ImageInspect", func() (image.InspectResponse, error) {
		i, err := m.findImage(ref)
		if err != nil {
			return image.InspectResponse{}, err
		}
		config := &dockerspec.DockerOCIImageConfig{ImageConfig: i.config.Config}
		config.Labels = maps.Clone(i.labels)
		layers := image.RootFS{Type: i.config.RootFS.Type}
		for _, id := range i.config.RootFS.DiffIDs {
			layers.Layers = append(layers.Layers, id.String())
		}
		return image.InspectResponse{ID: i.id, RepoTags: slices.Clone(i.tags), Os: "linux", Architecture: "amd64", Size: 1, Config: config, RootFS: layers}, nil
	})
}

func (m *Memory) ImageList(ctx context.Context, _ image.ListOptions) ([]image.Summary, error) {
	return call(ctx, m, "ImageList", func() (list []image.Summary, _ error) {
		for _, i := range m.images {
			list = append(list, image.Summary{ID: i.id, RepoTags: slices.Clone(i.tags), Size: 1})
		}
		return list, nil
	})
}

func (m *Memory) ImageHistory(ctx context.Context, _ string, _ ...docker.ImageHistoryOption) ([]image.HistoryResponseItem, error) {
	return call(ctx, m, "ImageHistory", func() ([]image.HistoryResponseItem, error) { return nil, nil })
}

// ImageLoad supports archives with a manifest.json.
func (m *Memory) ImageLoad(ctx context.Context, input io.Reader, _ ...docker.ImageLoadOption) (image.LoadResponse, error) {
	return call(ctx, m, "ImageLoad", func() (image.LoadResponse, error) {
		files := map[string][]byte{}
		var archive, answer bytes.Buffer
		input := io.TeeReader(input, &archive)
		for r := tar.NewReader(input); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err == nil {
				files[header.Name], err = io.ReadAll(r)
			}
			if err != nil {
				return image.LoadResponse{}, fmt.Errorf("image archive: %w: %w", errdefs.ErrInvalidArgument, err)
			}
		}
		var manifest []struct {
			Config   string
			RepoTags []string
		}
		if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
			return image.LoadResponse{}, fmt.Errorf("manifest.json: %w: %w", errdefs.ErrInvalidArgument, err)
		}
		for _, one := range manifest {
			i := m.images[m.addImage(files[one.Config], one.RepoTags)]
			i.save = archive.Bytes()
			if err := json.Unmarshal(files[one.Config], &i.config); err != nil {
				return image.LoadResponse{}, fmt.Errorf("%s: %w: %w", one.Config, err, errdefs.ErrInvalidArgument)
			}
			for _, tag := range one.RepoTags {
				fmt.Fprintf(&answer, `{"stream":"Loaded image: %s\n"}`, tag)
			}
		}
		return image.LoadResponse{Body: io.NopCloser(&answer), JSON: true}, nil
	})
}

// ImageSave returns the archive of an image that was loaded.
func (m *Memory) ImageSave(ctx context.Context, ids []string, _ ...docker.ImageSaveOption) (io.ReadCloser, error) {
	return call(ctx, m, "ImageSave", func() (io.ReadCloser, error) {
		i, err := m.findImage(ids[0])
		if err != nil {
			return nil, err
		}
		return io.NopCloser(bytes.NewReader(i.save)), nil
	})
}

// ImagePull succeeds for all references except those of the registry missing.example.
func (m *Memory) ImagePull(ctx context.Context, ref string, _ image.PullOptions) (io.ReadCloser, error) {
	return call(ctx, m, "ImagePull", func() (io.ReadCloser, error) {
		if strings.HasPrefix(ref, "missing.example/") {
			return io.NopCloser(strings.NewReader(`{"errorDetail":{"message":"manifest unknown"},"error":"manifest unknown"}`)), nil
		}
		m.addImage([]byte(ref), []string{ref})
		return io.NopCloser(strings.NewReader(`{"status":"Pulling"}{"status":"Done"}`)), nil
	})
}

func (m *Memory) ImageTag(ctx context.Context, source, target string) error {
	_, err := call(ctx, m, "ImageTag", func() (any, error) {
		i, err := m.findImage(source)
		if err == nil {
			i.tags = append(i.tags, target)
			m.event(events.ImageEventType, events.ActionTag, i.id, nil)
		}
		return nil, err
	})
	return err
}

// ImageRemove removes a name if the image has others.
func (m *Memory) ImageRemove(ctx context.Context, ref string, _ image.RemoveOptions) ([]image.DeleteResponse, error) {
	return call(ctx, m, "ImageRemove", func() ([]image.DeleteResponse, error) {
		i, err := m.findImage(ref)
		if err != nil {
			return nil, err
		}
		if i.id != ref && len(i.tags) > 1 {
			i.tags = slices.DeleteFunc(i.tags, func(tag string) bool { return tag == ref })
			m.event(events.ImageEventType, events.ActionUnTag, i.id, nil)
			return []image.DeleteResponse{{Untagged: ref}}, nil
		}
		delete(m.images, i.id)
		m.event(events.ImageEventType, events.ActionDelete, i.id, nil)
		return []image.DeleteResponse{{Deleted: i.id}}, nil
	})
}
