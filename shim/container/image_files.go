package container

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/storage"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/state"
)

const (
	maxUserFile  = 1 << 20 // maximum size in bytes, because the image's author controls the file
	maxUserCache = 256     // images; a full cache is cleared
)

// userFiles caches /etc/passwd and /etc/group of images.
type userFiles struct {
	engine Engine
	owner  string
	mu     sync.Mutex // guards known
	known  map[string]userPair
}

type userPair struct{ passwd, group []byte }

func (u *userFiles) ofImage(ctx context.Context, i image.InspectResponse) (passwd, group []byte, err error) {
	return u.read(i.ID, layerDirs(i.GraphDriver), func() (pair userPair, err error) {
		err = inImage(ctx, u.engine, u.owner, i.ID, func(id string) error {
			pair, err = u.copy(ctx, id)
			return err
		})
		return pair, err
	})
}

func (u *userFiles) read(imageID string, dirs []string, otherwise func() (userPair, error)) (passwd, group []byte, err error) {
	u.mu.Lock()
	pair, ok := u.known[imageID]
	u.mu.Unlock()
	if ok {
		return pair.passwd, pair.group, nil
	}
	if pair.passwd, err = readLayers(dirs, "etc/passwd"); err == nil {
		pair.group, err = readLayers(dirs, "etc/group")
	}
	if err != nil {
		if pair, err = otherwise(); err != nil {
			return nil, nil, err
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.known == nil || len(u.known) >= maxUserCache {
		u.known = map[string]userPair{}
	}
	u.known[imageID] = pair
	return pair.passwd, pair.group, nil
}

const helperName = "crishim-users-"

const maxHelperAge = 10 * time.Minute

// RemoveOwned removes the containers of a killed owner. Without an owner it removes old helper containers.
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

var errNoLayers = errors.New("the image's layers cannot be read here")

type layer int

const (
	layerSilent   layer = iota // no entry
	layerHas                   // a directory, possibly with more entries in lower layers
	layerHasAlone              // an entry that hides the lower layers
	layerHides                 // a whiteout
)

// look examines a relative path and its parents in one layer.
func look(dir, name string) (layer, fs.FileInfo, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return layerSilent, nil, fmt.Errorf("%w: %w", errNoLayers, err)
	}
	defer root.Close()
	var info fs.FileInfo
	found := layerHas
	parts := strings.Split(path.Clean(name), "/")
	isWhiteout := func(info fs.FileInfo) bool {
		s, ok := info.Sys().(*syscall.Stat_t)
		return ok && info.Mode()&fs.ModeCharDevice != 0 && s.Rdev == 0
	}
	for i := range parts {
		part := strings.Join(parts[:i+1], "/")
		info, err = root.Lstat(part)
		switch {
		case errors.Is(err, fs.ErrNotExist) && found == layerHasAlone:
			return layerHides, nil, nil // an opaque parent without the path
		case errors.Is(err, fs.ErrNotExist):
			return layerSilent, nil, nil
		case err != nil:
			return layerSilent, nil, fmt.Errorf("%w: %w", errNoLayers, err)
		case isWhiteout(info):
			return layerHides, nil, nil
		case info.Mode()&fs.ModeSymlink != 0:
			return layerSilent, nil, fmt.Errorf("%w: %s is a symbolic link", errNoLayers, part)
		case !info.IsDir() || opaque(filepath.Join(dir, part)):
			found = layerHasAlone
		}
	}
	return found, info, nil
}

func opaque(dir string) bool {
	value := make([]byte, 1)
	for _, name := range []string{"trusted.overlay.opaque", "user.overlay.opaque"} {
		if n, err := unix.Lgetxattr(dir, name, value); err == nil && n == 1 && value[0] == 'y' {
			return true
		}
	}
	return false
}

func subLayers(dirs []string, sub string) ([]string, error) {
	var out []string
	for _, dir := range dirs {
		found, info, err := look(dir, sub)
		if err != nil {
			return nil, err
		}
		if found == layerHas || found == layerHasAlone {
			if !info.IsDir() {
				return nil, invalid("%s is not a directory in the image, which this engine needs", sub)
			}
			out = append(out, filepath.Join(dir, sub))
		}
		if found == layerHasAlone || found == layerHides {
			break
		}
	}
	if len(out) == 0 {
		return nil, invalid("%s does not exist in the image", sub)
	}
	return out, nil
}

func readLayers(dirs []string, name string) ([]byte, error) {
	if len(dirs) == 0 {
		return nil, errNoLayers
	}
	for _, dir := range dirs {
		found, info, err := look(dir, name)
		if err != nil {
			return nil, err
		}
		switch found {
		case layerHides:
			return nil, nil
		case layerHas, layerHasAlone:
			return readRegular(dir, name, info)
		}
	}
	return nil, nil
}

func readRegular(dir, name string, info fs.FileInfo) ([]byte, error) {
	if !info.Mode().IsRegular() || info.Size() > maxUserFile {
		return nil, fmt.Errorf("%w: %s is no small regular file", errNoLayers, name)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoLayers, err)
	}
	defer root.Close()
	return root.ReadFile(name)
}
