// Package overlay looks up paths in the directories that overlayfs merges: the layers of an image or a container on this
// machine. No symbolic link leads out of the layers.
package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Layers are the directories, topmost first.
type Layers []string

// maxLinks is the kernel's limit of symbolic links in one path lookup.
const maxLinks = 40

// Open opens a regular file. It follows links as a process in the container would. A path that does not exist returns
// fs.ErrNotExist. Paths below mounts, the mount points in the container, are refused.
func (l Layers) Open(name string, mounts ...string) (*os.File, error) {
	_, file, err := l.lookup(name, mounts)
	if err == nil && file == nil {
		err = fs.ErrInvalid
	}
	return file, err
}

// Sub returns the directories that overlayfs merges at a path. Like Open it follows links.
func (l Layers) Sub(name string) (Layers, error) {
	below, file, err := l.lookup(name, nil)
	if file != nil {
		err = errors.Join(unix.ENOTDIR, file.Close())
	}
	return below, err
}

// lookup returns the directories that are merged at a path, or the regular file there.
func (l Layers) lookup(name string, mounts []string) (Layers, *os.File, error) {
	var roots []*os.Root
	for _, dir := range l {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, nil, fmt.Errorf("open a layer: %v", err) //nolint:errorlint // a missing layer is not a missing file
		}
		defer root.Close()
		roots = append(roots, root)
	}
	type directory struct {
		at string
		in []*os.Root
	}
	above := []directory{{".", roots}}
	links := 0
	for todo := strings.Split(name, "/"); len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			above = above[:max(len(above)-1, 1)]
			continue
		}
		here := above[len(above)-1]
		next := directory{at: path.Join(here.at, part)}
		if slices.Contains(mounts, "/"+next.at) {
			return nil, nil, fmt.Errorf("%s is mounted in the container", next.at)
		}
		in, of, file, err := merged(here.in, next.at)
		if err != nil {
			return nil, nil, err
		}
		next.in = in
		switch {
		case len(next.in) > 0: // the directories hide a file in a lower layer
			above = append(above, next)
		case file == nil || Whiteout(file):
			return nil, nil, fs.ErrNotExist
		case file.Mode()&fs.ModeSymlink != 0:
			target, err := of.Readlink(next.at)
			if links++; links > maxLinks {
				err = unix.ELOOP
			}
			if err != nil {
				return nil, nil, err
			}
			if path.IsAbs(target) {
				above = above[:1]
			}
			todo = append(strings.Split(target, "/"), todo...)
		case len(todo) > 0:
			return nil, nil, fs.ErrNotExist
		case !file.Mode().IsRegular():
			return nil, nil, fs.ErrInvalid
		default:
			opened, err := of.OpenFile(next.at, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
			return nil, opened, err
		}
	}
	found := above[len(above)-1]
	var dirs Layers
	for _, root := range found.in {
		dirs = append(dirs, filepath.Join(root.Name(), found.at))
	}
	return dirs, nil, nil
}

// merged returns the directories that overlayfs merges at a path, or the file at that path and its layer. A file in a
// layer below a directory is also returned: the directory hides the file, and the file hides the layers below it.
func merged(layers []*os.Root, at string) (directories []*os.Root, of *os.Root, file fs.FileInfo, err error) {
	for _, l := range layers {
		info, err := l.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, nil, nil, err
		case !info.IsDir():
			return directories, l, info, nil
		}
		if directories = append(directories, l); Opaque(l, at) {
			break
		}
	}
	return directories, nil, nil, nil
}

// Whiteout reports whether a file is overlayfs's mark of a deleted file: a character device with the number 0.
func Whiteout(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0
}

// Opaque reports whether a directory hides the lower layers. For root only the trusted.* attribute counts. A container
// can set the user.* attribute, but overlayfs reads it only in rootless mounts.
func Opaque(l *os.Root, dir string) bool {
	f, err := l.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	name := "trusted.overlay.opaque"
	if os.Geteuid() != 0 {
		name = "user.overlay.opaque"
	}
	var value [1]byte
	n, err := unix.Fgetxattr(int(f.Fd()), name, value[:])
	return err == nil && n == 1 && value[0] == 'y'
}
