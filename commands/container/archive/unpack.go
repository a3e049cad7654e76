// Package archive copies files between a directory and a tar stream. It trusts neither of them: no name and no symbolic
// link makes it read or write outside of the directory.
//
// It does not support compression, extended attributes, devices, or the setuid, setgid and sticky bits.
package archive

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/crishim/crishim/internal/bounded"
)

// Options are the options of [Pack] and [Unpack]. Pack ignores Strip, Name and Directory.
type Options struct {
	// Strip drops the first part of every entry's name.
	Strip bool
	// Name is a path that every entry's name is joined to.
	Name string
	// Directory rejects an archive whose entry at Name is not a directory.
	Directory bool
	// Owner maps owner and group; see [KeepOwner]. By default root owns packed files, and the user owns unpacked ones.
	Owner func(uid, gid int) (int, int)
	// Skipped is called for each skipped entry. It may be nil.
	Skipped func(name, why string)
	// Name of the directory in errors; the default is the name of the root.
	Where string
}

// KeepOwner is a value of Options.Owner that changes nothing.
func KeepOwner(uid, gid int) (int, int) { return uid, gid }

func (o Options) path(file string) string { return filepath.Join(o.Where, file) }

// inWhere prefixes a relative path in an error with Where.
func (o Options) inWhere(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) && !filepath.IsAbs(failed.Path) {
		return fmt.Errorf("%s: %w", o.path(failed.Path), failed.Err)
	}
	return err
}

// Unpack writes the entries of r below root.
func Unpack(r io.Reader, root *os.Root, o Options) error {
	o.Where = cmp.Or(o.Where, root.Name())
	top, err := root.Open(".")
	if err != nil {
		return err
	}
	defer top.Close()
	u := &unpacker{root: root, top: top, o: o, seen: map[string]int{}, names: bounded.Budget{Left: maxNames, Of: fmt.Sprintf("%d MiB of directories", maxNames>>20)}}
	entries := tar.NewReader(r)
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return o.inWhere(u.finish())
		}
		if err != nil {
			return fmt.Errorf("read tar stream: %w", err)
		}
		if err := u.entry(h, entries); err != nil {
			return o.inWhere(err)
		}
	}
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "it is a FIFO"
	case mode&fs.ModeCharDevice != 0:
		return "it is a character device"
	case mode&fs.ModeDevice != 0:
		return "it is a block device"
	case mode&fs.ModeSocket != 0:
		return "it is a socket"
	}
	return "it is neither a file nor a directory nor a link"
}

type unpacker struct {
	root *os.Root
	top  *os.File // the open directory of root
	o    Options
	dirs []*tar.Header // unpacked directories; finish sets their owner, mode and time
	seen map[string]int

	names bounded.Budget // memory left for dirs
	disk  bounded.Disk
}

const (
	maxNames  = 512 << 20 // bytes in memory for directories
	perHeader = 512       // bytes in memory for a directory, in addition to its name
)

// maxName is the longest path of Linux. Names in tar may be longer.
const maxName = 4096

func (u *unpacker) target(name string) (string, error) {
	if len(name) > maxName {
		return "", fmt.Errorf("tar entry %.60q... has a name of %d bytes", name, len(name))
	}
	clean := path.Clean(name)
	if path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
		return "", fmt.Errorf("tar entry %q leaves the directory", name)
	}
	if u.o.Strip {
		_, clean, _ = strings.Cut(clean, "/")
	}
	return path.Join(".", u.o.Name, clean), nil
}

func (u *unpacker) entry(h *tar.Header, body io.Reader) error {
	name, err := u.target(h.Name)
	if err != nil {
		return err
	}
	if u.o.Directory && name == u.o.Name && h.Typeflag != tar.TypeDir {
		return fmt.Errorf("there is no directory %s", u.o.path(name))
	}
	if err := u.parents(path.Dir(name), h); err != nil {
		return err
	}
	if err := u.disk.Take(u.top, bounded.PerFile); err != nil {
		return fmt.Errorf("%s: %w", u.o.path(name), err)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.dir(h, name)
	case tar.TypeReg:
		return u.file(h, name, body)
	case tar.TypeSymlink:
		return u.replace(name, func(temporary string) error {
			return cmp.Or(u.root.Symlink(h.Linkname, temporary), u.own(temporary, h))
		})
	case tar.TypeLink:
		old, err := u.target(h.Linkname)
		if err != nil {
			return err
		}
		return u.replace(name, func(temporary string) error { return u.root.Link(old, temporary) })
	}
	if u.o.Skipped != nil {
		u.o.Skipped(h.Name, kindOf(h.FileInfo().Mode()))
	}
	return nil
}

// parents creates missing parent directories of an entry. An archive need not have entries for them.
func (u *unpacker) parents(dir string, h *tar.Header) error {
	if _, err := u.root.Stat(dir); dir == "." || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := u.parents(path.Dir(dir), h); err != nil {
		return err
	}
	if err := u.disk.Take(u.top, bounded.PerFile); err != nil {
		return fmt.Errorf("%s: %w", u.o.path(dir), err)
	}
	if err := u.root.Mkdir(dir, 0o777); err != nil {
		return err
	}
	return u.own(dir, h)
}

func (u *unpacker) dir(h *tar.Header, name string) error {
	info, err := u.root.Lstat(name)
	switch {
	case err == nil && info.IsDir():
	case err == nil:
		return fmt.Errorf("%s is not a directory", u.o.path(name))
	default:
		if err := u.root.Mkdir(name, 0o700|h.FileInfo().Mode().Perm()); err != nil {
			return err
		}
	}
	if name == "." {
		return nil // the user's own directory, which existed before
	}
	// The whole header would keep its extended records, which may be large.
	last := &tar.Header{Typeflag: h.Typeflag, Name: name, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime}
	if i, ok := u.seen[name]; ok {
		u.dirs[i] = last
		return nil
	}
	if err := u.names.Take(int64(len(name)) + perHeader); err != nil {
		return fmt.Errorf("%s: %w", u.o.path(name), err)
	}
	u.seen[name] = len(u.dirs)
	u.dirs = append(u.dirs, last)
	return nil
}

// replace creates a file under a temporary name and renames it. A failed copy leaves the old file, and nothing is
// written through a link.
func (u *unpacker) replace(name string, create func(temporary string) error) error {
	if err := u.replaceable(name); err != nil {
		return err
	}
	temporary := path.Join(path.Dir(name), ".crishim-"+rand.Text())
	err := create(temporary)
	if err == nil {
		err = u.root.Rename(temporary, name)
	}
	// A rename to another link of the same file does nothing.
	if removed := u.root.Remove(temporary); !errors.Is(removed, fs.ErrNotExist) {
		err = cmp.Or(err, removed)
	}
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) && failed.Path == temporary {
		failed.Path = name
	}
	return err
}

func (u *unpacker) file(h *tar.Header, name string, body io.Reader) error {
	return u.replace(name, func(temporary string) error {
		f, err := u.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, h.FileInfo().Mode().Perm())
		if err != nil {
			return err
		}
		if err := errors.Join(u.copy(f, name, body, h.Size), f.Close()); err != nil {
			return err
		}
		return u.attributes(h, temporary)
	})
}

const block = 64 << 10

// copy writes holes in place of zeros, because a sparse file may be larger than the disk. It fails when little free space
// is left, so that the copy does not fill the disk.
func (u *unpacker) copy(f *os.File, name string, body io.Reader, size int64) error {
	buf, zeros := make([]byte, block), make([]byte, block)
	for at := int64(0); at < size; at += int64(len(buf)) {
		buf = buf[:min(block, size-at)]
		if _, err := io.ReadFull(body, buf); err != nil {
			return err
		}
		if bytes.Equal(buf, zeros[:len(buf)]) {
			continue
		}
		if err := u.disk.Take(f, len(buf)); err != nil {
			return fmt.Errorf("%s: %w", u.o.path(name), err)
		}
		if _, err := f.WriteAt(buf, at); err != nil {
			return err
		}
	}
	return f.Truncate(size)
}

// replaceable returns an error for directories, devices, pipes and sockets. A copy to /dev/null, for example, would
// remove the device for the whole machine.
func (u *unpacker) replaceable(name string) error {
	info, err := u.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory", u.o.path(name))
	case !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink:
		return fmt.Errorf("%s is a device, a pipe or a socket and is not replaced", u.o.path(name))
	}
	return nil
}

func (u *unpacker) attributes(h *tar.Header, name string) error {
	if err := u.own(name, h); err != nil {
		return err
	}
	if err := u.root.Chmod(name, h.FileInfo().Mode().Perm()); err != nil {
		return err
	}
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
}

func (u *unpacker) own(name string, h *tar.Header) error {
	if u.o.Owner == nil {
		return nil
	}
	uid, gid := u.o.Owner(h.Uid, h.Gid)
	return u.root.Lchown(name, uid, gid)
}

// finish sets the attributes of the directories in reverse order, because an archive lists a directory before its
// contents. It runs last, because a read-only mode would prevent writes into a directory.
func (u *unpacker) finish() error {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		if err := u.attributes(u.dirs[i], u.dirs[i].Name); err != nil {
			return err
		}
	}
	return nil
}
