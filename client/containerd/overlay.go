package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/containerd/api/services/snapshots/v1"
	"golang.org/x/sys/unix"
)

// Overlay is a container's filesystem: the directories on this machine that overlayfs merges.
type Overlay struct {
	Upper  string   // files written by the container
	Lower  []string // layers of the image, topmost first
	Mounts []string // mount points in the container
}

// Overlay returns the directories of a container. info is the Info map of its verbose CRI status.
func (s *Store) Overlay(ctx context.Context, info map[string]string) (o Overlay, err error) {
	var of struct {
		Snapshotter, SnapshotKey string
		RuntimeSpec              struct {
			Mounts []struct{ Destination string }
		}
	}
	if err := json.Unmarshal([]byte(info["info"]), &of); err != nil || of.SnapshotKey == "" {
		return o, errors.New("containerd does not tell where the container's files are")
	}
	for _, m := range of.RuntimeSpec.Mounts {
		o.Mounts = append(o.Mounts, m.Destination)
	}
	answer, err := s.snapshots.Mounts(in(ctx), &snapshots.MountsRequest{Snapshotter: of.Snapshotter, Key: of.SnapshotKey})
	if err != nil {
		return o, err
	}
	for _, m := range answer.GetMounts() {
		for _, option := range m.GetOptions() {
			name, value, _ := strings.Cut(option, "=")
			switch name {
			case "upperdir":
				o.Upper = value
			case "lowerdir":
				o.Lower = strings.Split(value, ":")
			}
		}
	}
	if o.Upper == "" {
		return o, fmt.Errorf("the snapshotter %s keeps no directory of changes", of.Snapshotter)
	}
	for _, dir := range o.Lower {
		if !filepath.IsAbs(dir) {
			return o, fmt.Errorf("the layer %q of the snapshotter %s has no path", dir, of.Snapshotter)
		}
	}
	return o, nil
}

// maxLinks is the kernel's limit of symbolic links in one path lookup.
const maxLinks = 40

// Open opens a regular file of a stopped container. It follows links as a process in the container would. A path that
// does not exist returns fs.ErrNotExist.
func (o Overlay) Open(name string) (*os.File, error) {
	var layers []*os.Root
	for _, dir := range append([]string{o.Upper}, o.Lower...) {
		l, err := os.OpenRoot(dir)
		if err != nil {
			return nil, fmt.Errorf("open a layer: %v", err) //nolint:errorlint // a missing layer is not a missing file
		}
		defer l.Close()
		layers = append(layers, l)
	}
	type directory struct {
		at string
		in []*os.Root
	}
	above := []directory{{".", layers}}
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
		if slices.Contains(o.Mounts, "/"+next.at) {
			return nil, fmt.Errorf("%s is mounted in the container", next.at)
		}
		in, of, file, err := merged(here.in, next.at)
		if err != nil {
			return nil, err
		}
		next.in = in
		switch {
		case len(next.in) > 0: // a file hides the layers below
			above = append(above, next)
		case file == nil || Whiteout(file):
			return nil, fs.ErrNotExist
		case file.Mode()&fs.ModeSymlink != 0:
			target, err := of.Readlink(next.at)
			if links++; links > maxLinks {
				err = unix.ELOOP
			}
			if err != nil {
				return nil, err
			}
			if path.IsAbs(target) {
				above = above[:1]
			}
			todo = append(strings.Split(target, "/"), todo...)
		case len(todo) > 0:
			return nil, fs.ErrNotExist
		case !file.Mode().IsRegular():
			return nil, fs.ErrInvalid
		default:
			return of.OpenFile(next.at, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		}
	}
	return nil, fs.ErrInvalid // a directory
}

// merged returns the directories that overlayfs merges at a path, or the file at that path and its layer.
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

// Opaque reports whether a directory hides the lower layers.
func Opaque(l *os.Root, dir string) bool {
	f, err := l.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	var value [1]byte
	n, err := unix.Fgetxattr(int(f.Fd()), "trusted.overlay.opaque", value[:])
	return err == nil && n == 1 && value[0] == 'y'
}
