package bounded

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// WalkOptions limit a walk.
type WalkOptions struct {
	Limit uint64                 // of files and directories; 0: none
	Skip  func(path string) bool // below the directory, with what is in it; nil: nothing
}

// WalkSum is what a walk has found.
type WalkSum struct {
	Bytes uint64 // on the disk
	Files uint64 // and directories
	More  bool   // there are more than the limit
}

// Walk sums the files of a directory, one with several names once. It does not leave the file system. What is removed
// meanwhile is not counted. Containers may write there: there may be any number of files, and a link in the place of a
// directory.
func Walk(ctx context.Context, dir string, o WalkOptions) (sum WalkSum, err error) {
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
			if o.Skip != nil && o.Skip(name) {
				return
			}
			if o.Limit > 0 && sum.Files >= o.Limit {
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

// count adds a file of a device, one of several links once, and reports whether it is on that device.
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

// entries reads a directory, some entries at a time.
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
