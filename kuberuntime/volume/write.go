package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// dataLink points at the folder with the present files. Names at the top of the volume
// are links through it, so that one rename changes them all.
const dataLink = "..data"

// write brings the files of a volume up to date.
func write(dir string, want files, mode fs.FileMode, group *int64) error {
	if mode == 0 {
		mode = 0o644
	}
	if same(dir, want, mode, group) {
		return nil
	}
	fresh, err := os.MkdirTemp(dir, "..v")
	if err != nil {
		return err
	}
	if err := fill(fresh, want, mode, group); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	old, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := swap(dir, filepath.Base(fresh)); err != nil {
		return err
	}
	if err := linkNames(dir, want); err != nil {
		return err
	}
	if old != "" {
		return os.RemoveAll(filepath.Join(dir, old))
	}
	return nil
}

func fill(dir string, want files, mode fs.FileMode, group *int64) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for name, f := range want {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.data, 0o600); err != nil {
			return err
		}
		if err := os.Chmod(path, fileMode(f, mode)); err != nil {
			return err
		}
	}
	return own(dir, group, 0o440)
}

func fileMode(f file, mode fs.FileMode) fs.FileMode {
	if f.mode != 0 {
		return f.mode
	}
	return mode
}

func swap(dir, target string) error {
	tmp := filepath.Join(dir, "..data_tmp")
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, dataLink))
}

// linkNames makes the links that are missing and removes those that lead nowhere.
func linkNames(dir string, want files) error {
	tops := map[string]bool{}
	for name := range want {
		top, _, _ := strings.Cut(name, "/")
		tops[top] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasPrefix(name, "..") && !tops[name] {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	for top := range tops {
		err := os.Symlink(filepath.Join(dataLink, top), filepath.Join(dir, top))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link %s: %w", top, err)
		}
	}
	return nil
}

// same says whether the volume has exactly the wanted files already.
func same(dir string, want files, mode fs.FileMode, group *int64) bool {
	root := filepath.Join(dir, dataLink) + string(filepath.Separator)
	found := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f, wanted := want[filepath.ToSlash(name)]
		if !wanted {
			return errDiffers
		}
		found++
		return f.compare(path, entry, mode, group)
	})
	return err == nil && found == len(want)
}

var errDiffers = errors.New("differs")

func (f file) compare(path string, entry fs.DirEntry, mode fs.FileMode, group *int64) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	wantMode := fileMode(f, mode)
	if group != nil {
		wantMode |= 0o440
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if info.Mode().Perm() != wantMode || !bytes.Equal(data, f.data) {
		return errDiffers
	}
	return nil
}
