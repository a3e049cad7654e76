package volume

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/bounded"
)

// dataLink points at the folder with the present files, whose name begins with dataPrefix.
// Names at the top of the volume are links through it, so that one rename changes them all.
const (
	dataLink   = "..data"
	dataPrefix = "..v"
)

// write brings the files of a volume up to date. Containers have the volume read-only;
// one with the right to change that leads nothing out of it either.
func write(dir string, want files, mode fs.FileMode, group *int64) (err error) {
	mode = cmp.Or(mode, 0o644)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if same(root, want, mode, group) {
		return nil
	}
	fresh := dataPrefix + rand.Text()
	if err := fill(root, fresh, want, mode, group); err != nil {
		return errors.Join(err, root.RemoveAll(fresh))
	}
	if err := swap(root, fresh); err != nil {
		return err
	}
	return linkNames(root, fresh, want)
}

func fill(root *os.Root, name string, want files, mode fs.FileMode, group *int64) error {
	if err := root.Mkdir(name, 0o755); err != nil {
		return err
	}
	fresh, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer fresh.Close()
	if err := fresh.Chmod(".", 0o755); err != nil { // the umask has no say
		return err
	}
	for name, f := range want {
		if err := fresh.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := fresh.WriteFile(name, f.data, 0o600); err != nil {
			return err
		}
		if err := fresh.Chmod(name, cmp.Or(f.mode, mode)); err != nil {
			return err
		}
	}
	return own(fresh, group)
}

// own gives a tree to the pod's fsGroup, as the kubelet does: the group can read files,
// folders pass it on to what is made in them.
func own(root *os.Root, group *int64) error {
	if group == nil {
		return nil
	}
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := root.Lchown(name, -1, int(*group)); err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o440
		if entry.IsDir() {
			mode |= fs.ModeSetgid | 0o110
		}
		return root.Chmod(name, mode)
	})
}

func swap(root *os.Root, target string) error {
	const tmp = "..data_tmp"
	if err := root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := root.Symlink(target, tmp); err != nil {
		return err
	}
	return root.Rename(tmp, dataLink)
}

// linkNames makes the links that are missing, and removes those that lead nowhere and what
// earlier calls wrote, whether they came to their end or not.
func linkNames(root *os.Root, fresh string, want files) error {
	tops := map[string]bool{}
	for name := range want {
		top, _, _ := strings.Cut(name, "/")
		tops[top] = true
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, dataPrefix) && name != fresh || !strings.HasPrefix(name, "..") && !tops[name] {
			if err := root.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	for top := range tops {
		err := root.Symlink(filepath.Join(dataLink, top), top)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link %s: %w", top, err)
		}
	}
	return nil
}

// same reports whether the volume has exactly the wanted files already.
func same(root *os.Root, want files, mode fs.FileMode, group *int64) bool {
	name, err := root.Readlink(dataLink)
	if err != nil {
		return false
	}
	present, err := root.OpenRoot(name)
	if err != nil {
		return false
	}
	defer present.Close()
	found := 0
	err = fs.WalkDir(present.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f, wanted := want[name]
		if !wanted {
			return errDiffers
		}
		found++
		return f.compare(present, name, mode, group)
	})
	return err == nil && found == len(want)
}

var errDiffers = errors.New("differs")

func (f file) compare(root *os.Root, name string, mode fs.FileMode, group *int64) error {
	opened, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return err
	}
	wantMode := cmp.Or(f.mode, mode)
	if group != nil {
		wantMode |= 0o440
	}
	if !info.Mode().IsRegular() || info.Mode().Perm() != wantMode {
		return errDiffers
	}
	data, err := bounded.ReadAll(opened, int64(len(f.data)))
	if err != nil || !bytes.Equal(data, f.data) {
		return errDiffers
	}
	return nil
}
