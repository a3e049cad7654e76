package container

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/storage"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/overlay"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/state"
)

const (
	maxUserFile  = 1 << 20 // maximum size in bytes, because the image's author controls the file
	maxUserCache = 256     // images, and as many containers; a full cache is cleared
)

// userFiles caches /etc/passwd and /etc/group of images. Copies from a container are cached for this container alone,
// because it may have changed them.
type userFiles struct {
	engine Engine
	owner  string
	mu     sync.Mutex // guards the maps
	images map[string]userPair
	copies map[string]userPair // by container
}

type userPair struct{ passwd, group []byte }

func (u *userFiles) ofImage(ctx context.Context, i image.InspectResponse) (passwd, group []byte, err error) {
	return u.read(&u.images, i.ID, i.ID, layerDirs(i.GraphDriver), func() (pair userPair, err error) {
		err = inImage(ctx, u.engine, u.owner, i.ID, func(id string) error {
			pair, err = u.copy(ctx, id)
			return err
		})
		return pair, err
	})
}

// ofContainer returns the files of a container's image, or the container's own if the layers cannot be read here.
func (u *userFiles) ofContainer(ctx context.Context, c container.InspectResponse) (passwd, group []byte, err error) {
	return u.read(&u.copies, c.ID, c.Image, lowerDirs(c.GraphDriver), func() (userPair, error) { return u.copy(ctx, c.ID) })
}

// read returns cached files, or reads them from an image's layers. If that is not possible, it caches copies of the files
// in the given map.
func (u *userFiles) read(copies *map[string]userPair, id, imageID string, dirs []string, copyFiles func() (userPair, error)) (passwd, group []byte, err error) {
	u.mu.Lock()
	pair, ok := u.images[imageID]
	if !ok {
		pair, ok = (*copies)[id]
	}
	u.mu.Unlock()
	if ok {
		return pair.passwd, pair.group, nil
	}
	cache, key := &u.images, imageID
	if pair.passwd, err = readLayers(dirs, "etc/passwd"); err == nil {
		pair.group, err = readLayers(dirs, "etc/group")
	}
	if err != nil {
		cache, key = copies, id
		if pair, err = copyFiles(); err != nil {
			return nil, nil, err
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if *cache == nil || len(*cache) >= maxUserCache {
		*cache = map[string]userPair{}
	}
	(*cache)[key] = pair
	return pair.passwd, pair.group, nil
}

const helperName = "crishim-users-"

const maxHelperAge = 10 * time.Minute

// RemoveOwned removes the helper and temporary containers of an owner whose process was killed. Without an owner it
// removes all helper containers older than maxHelperAge.
func (s *Service) RemoveOwned(ctx context.Context, owner string) error {
	label := state.LabelOwner
	if owner != "" {
		label += "=" + owner
	}
	list, err := s.Engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
	errs := []error{err}
	for _, c := range list {
		// Labels of a container may come from its image, but the helper's name cannot.
		isHelper := c.State == container.StateCreated && strings.HasPrefix(state.ListedName(c), "/"+helperName)
		found, ok := state.DecodeContainer(state.ListedName(c), c.Labels)
		switch {
		case isHelper && (owner != "" || time.Since(time.Unix(c.Created, 0)) > maxHelperAge):
			errs = append(errs, lifecycle.Remove(ctx, s.Engine, c.ID))
		case ok && owner != "" && found.Owner == owner:
			errs = append(errs, s.Remove(ctx, c.ID))
		}
	}
	return errors.Join(errs...)
}

// inImage creates a container of an image without starting it, calls look and removes the container.
func inImage(ctx context.Context, engine Engine, owner, imageID string, look func(id string) error) (err error) {
	cleanup, cancel := lifecycle.CleanupContext(ctx)
	defer cancel()
	name := fmt.Sprintf("%s%08x", helperName, rand.Uint32())
	created, err := engine.ContainerCreate(cleanup, &container.Config{
		Image: imageID, Entrypoint: []string{"none"}, NetworkDisabled: true, Labels: map[string]string{state.LabelOwner: owner},
	}, &container.HostConfig{NetworkMode: "none"}, nil, nil, name)
	if err != nil {
		return fmt.Errorf("read files of image %s: %w", imageID, err)
	}
	defer func() {
		err = errors.Join(err, engine.ContainerRemove(cleanup, created.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	}()
	return look(created.ID)
}

func (u *userFiles) copy(ctx context.Context, id string) (pair userPair, err error) {
	if pair.passwd, err = u.copyFile(ctx, id, "/etc/passwd"); err != nil {
		return pair, err
	}
	pair.group, err = u.copyFile(ctx, id, "/etc/group")
	return pair, err
}

func (u *userFiles) copyFile(ctx context.Context, id, path string) (content []byte, err error) {
	r, _, err := u.engine.CopyFromContainer(ctx, id, path)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	t := tar.NewReader(r)
	header, err := t.Next()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if header.Typeflag != tar.TypeReg {
		return nil, nil
	}
	return io.ReadAll(io.LimitReader(t, maxUserFile))
}

func layerDirs(g storage.DriverData) []string {
	if g.Name != overlay2 || g.Data["UpperDir"] == "" {
		return nil
	}
	return append([]string{g.Data["UpperDir"]}, lowerDirs(g)...)
}

const overlay2 = "overlay2"

func lowerDirs(g storage.DriverData) []string {
	if g.Name != overlay2 || g.Data["LowerDir"] == "" {
		return nil
	}
	return strings.Split(g.Data["LowerDir"], ":")
}

// subLayers returns the directories of a path in an image's layers.
func subLayers(dirs []string, sub string) ([]string, error) {
	found, err := overlay.Layers(dirs).Sub(sub)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, invalid("%s does not exist in the image", sub)
	case errors.Is(err, unix.ENOTDIR):
		return nil, invalid("%s is not a directory in the image, which this engine needs", sub)
	}
	return found, err
}

// readLayers returns the content of a file of an image, or nil for a missing file.
func readLayers(dirs []string, name string) ([]byte, error) {
	if len(dirs) == 0 {
		return nil, errors.New("the image's layers cannot be read here")
	}
	f, err := overlay.Layers(dirs).Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxUserFile))
}
