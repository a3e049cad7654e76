package container

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/storage"

	"github.com/crishim/crishim/shim/internal/lifecycle"
)

// maxUserFile bounds what is read of a file that anybody may have written.
const maxUserFile = 1 << 20

// maxUserCache bounds the cache; it is emptied when it is full.
const maxUserCache = 256

// userFiles reads /etc/passwd and /etc/group of images and remembers them: an
// image's content never changes.
type userFiles struct {
	engine Engine
	mu     sync.Mutex // guards known
	known  map[string]userPair
}

type userPair struct{ passwd, group []byte }

// ofImage reads the files from the image's layers where they are on this host,
// else out of a container that is made for that and never started.
func (u *userFiles) ofImage(ctx context.Context, i image.InspectResponse) (passwd, group []byte, err error) {
	return u.read(i.ID, layerDirs(i.GraphDriver), func() (userPair, error) { return u.probe(ctx, i.ID) })
}

// ofContainer reads the files of a container's image. The container's own
// layer is left out: what it changed there came after its first process.
func (u *userFiles) ofContainer(ctx context.Context, id, imageID string, g storage.DriverData) (passwd, group []byte, err error) {
	return u.read(imageID, lowerDirs(g), func() (userPair, error) { return u.copy(ctx, id) })
}

func (u *userFiles) read(imageID string, dirs []string, otherwise func() (userPair, error)) (passwd, group []byte, err error) {
	u.mu.Lock()
	pair, ok := u.known[imageID]
	u.mu.Unlock()
	if ok {
		return pair.passwd, pair.group, nil
	}
	if pair, err = fromLayers(dirs); err != nil {
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

func fromLayers(dirs []string) (pair userPair, err error) {
	if len(dirs) == 0 {
		return pair, errNoLayers
	}
	if pair.passwd, err = readLayers(dirs, "etc/passwd"); err != nil {
		return pair, err
	}
	pair.group, err = readLayers(dirs, "etc/group")
	return pair, err
}

// probe copies the files out of the image.
func (u *userFiles) probe(ctx context.Context, imageID string) (pair userPair, err error) {
	err = inImage(ctx, u.engine, imageID, func(id string) error {
		pair, err = u.copy(ctx, id)
		return err
	})
	return pair, err
}

// inImage looks at an image by way of a container that is never started, and removed
// again.
func inImage(ctx context.Context, engine Engine, imageID string, look func(id string) error) (err error) {
	patient, cancel := lifecycle.CleanupContext(ctx)
	defer cancel()
	name := fmt.Sprintf("crishim-users-%08x", rand.Uint32())
	created, err := engine.ContainerCreate(patient, &container.Config{
		Image: imageID, Entrypoint: []string{"none"}, NetworkDisabled: true,
	}, &container.HostConfig{NetworkMode: "none"}, nil, nil, name)
	if err != nil {
		return fmt.Errorf("look into image %s: %w", imageID, err)
	}
	defer func() {
		err = errors.Join(err, engine.ContainerRemove(patient, created.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
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

// copyFile returns the content of a file; one that does not exist is empty.
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
