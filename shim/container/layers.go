package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/docker/docker/api/types/storage"
	"golang.org/x/sys/unix"
)

// overlay2 is the only storage driver whose layers are plain directories that
// an overlay puts together.
const overlay2 = "overlay2"

// layerDirs are the directories of an image's layers on the engine's host, the
// topmost first. Empty with other storage drivers.
func layerDirs(g storage.DriverData) []string {
	if g.Name != overlay2 || g.Data["UpperDir"] == "" {
		return nil
	}
	return append([]string{g.Data["UpperDir"]}, lowerDirs(g)...)
}

func lowerDirs(g storage.DriverData) []string {
	if g.Name != overlay2 || g.Data["LowerDir"] == "" {
		return nil
	}
	return strings.Split(g.Data["LowerDir"], ":")
}

// errNoLayers: the layers are not on this host, or hold something that only
// the kernel should put together.
var errNoLayers = errors.New("the image's layers cannot be read here")

// layer is what one layer says about a path.
type layer int

const (
	layerSilent   layer = iota // does not mention it
	layerHas                   // has it; lower layers count too where it is a directory
	layerHasAlone              // has it and hides the lower layers
	layerHides                 // says that it is gone
)

// look asks one layer about a relative path, every parent included.
func look(dir, name string) (layer, fs.FileInfo, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return layerSilent, nil, fmt.Errorf("%w: %w", errNoLayers, err)
	}
	defer root.Close()
	var info fs.FileInfo
	found := layerHas
	parts := strings.Split(path.Clean(name), "/")
	for i := range parts {
		part := strings.Join(parts[:i+1], "/")
		info, err = root.Lstat(part)
		switch {
		case errors.Is(err, fs.ErrNotExist) && found == layerHasAlone:
			return layerHides, nil, nil // an opaque parent without it
		case errors.Is(err, fs.ErrNotExist):
			return layerSilent, nil, nil
		case err != nil:
			return layerSilent, nil, fmt.Errorf("%w: %w", errNoLayers, err)
		case whiteout(info):
			return layerHides, nil, nil
		case info.Mode()&fs.ModeSymlink != 0:
			return layerSilent, nil, fmt.Errorf("%w: %s is a symbolic link", errNoLayers, part)
		case !info.IsDir() || opaque(filepath.Join(dir, part)):
			found = layerHasAlone
		}
	}
	return found, info, nil
}

func whiteout(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode()&fs.ModeCharDevice != 0 && s.Rdev == 0
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

// subLayers are the directories that make up a directory inside an image.
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

// readLayers reads a file of an image. A file that is nowhere is empty.
func readLayers(dirs []string, name string) ([]byte, error) {
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
