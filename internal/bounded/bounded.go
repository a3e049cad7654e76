// Package bounded reads files up to a limit. A file that a user or a container names may be a device such as /dev/zero,
// which has no end. The package also limits directory walks, copies to a nearly full disk, and the memory or time for
// untrusted input.
package bounded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// Config is the size limit of a user's file in bytes.
const Config = 64 << 20

// ReadAll reads to EOF and fails if there are more than limit bytes.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, fmt.Errorf("must not have more than %d MiB", limit>>20)
	}
	return text, err
}

// ReadFile reads a file or a pipe, such as a shell's <(command).
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	return readAll(f, err, limit)
}

// ReadRegular reads an untrusted regular file. Devices and pipes are rejected, because they may block forever.
func ReadRegular(path string, limit int64) ([]byte, error) {
	f, err := OpenFile(path, os.O_RDONLY)
	return readAll(f, err, limit)
}

func readAll(f *os.File, err error, limit int64) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := ReadAll(f, limit)
	var known *fs.PathError
	if err != nil && !errors.As(err, &known) {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: err}
	}
	return text, err
}

// Reason returns the error of a file operation without the path, for messages that contain the path already.
func Reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// OpenFile opens an untrusted regular file. It does not block on a pipe without a peer or on a container's lease on the
// file.
func OpenFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Open opens a regular file that a container may have replaced. It does not block and does not follow a symbolic link in
// the last element of path. It follows symbolic links in directories above.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW) }

var errNotRegular = errors.New("not a regular file")

type WalkSum struct {
	Bytes uint64 // disk space
	Files uint64 // files and directories
	More  bool   // the limit was reached
}

// Walk sums the disk space of a directory with its files and subdirectories, and counts hard links once. It stays on the
// file system. It ignores files that are removed during the walk, and subdirectories that it cannot read. Containers may
// write to the directory, create any number of files and replace directories by symbolic links. Walk stops after limit
// files and directories; 0 means no limit.
func Walk(ctx context.Context, dir string, limit uint64) (sum WalkSum, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return sum, err
	}
	defer root.Close()
	top, err := root.Stat(".")
	if err != nil {
		return sum, err
	}
	device := uint64(0)
	if s, ok := top.Sys().(*syscall.Stat_t); ok {
		device = s.Dev
	}
	linked := map[uint64]bool{}
	sum.count(top, device, linked)
	for dirs := []string{"."}; len(dirs) > 0 && !sum.More; {
		at := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		err := entries(ctx, root, at, func(e fs.DirEntry) {
			name := path.Join(at, e.Name())
			if limit > 0 && sum.Files >= limit {
				sum.More = true
				return
			}
			info, err := e.Info()
			if err == nil && sum.count(info, device, linked) && e.IsDir() && len(name) < unix.PathMax {
				dirs = append(dirs, name)
			}
		})
		if ctx.Err() != nil || at == "." && err != nil {
			return sum, errors.Join(ctx.Err(), err)
		}
	}
	return sum, nil
}

// count adds a file on the device unless it is another hard link to a counted file. It reports whether the file is on
// the device.
func (w *WalkSum) count(info fs.FileInfo, device uint64, linked map[uint64]bool) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || s.Dev != device {
		return false
	}
	if linked[s.Ino] {
		return true
	}
	if s.Nlink > 1 && !info.IsDir() {
		linked[s.Ino] = true
	}
	w.Bytes += uint64(s.Blocks) * 512
	w.Files++
	return true
}

func entries(ctx context.Context, root *os.Root, name string, each func(fs.DirEntry)) error {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for ctx.Err() == nil {
		some, err := f.ReadDir(256)
		for _, e := range some {
			each(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
