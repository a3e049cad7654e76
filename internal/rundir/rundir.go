// Package rundir manages private directories of running commands, for the embedded shim and for ssh tunnels.
//
// All directories are in a base directory of the user, see [Base]. Each is locked while its process lives and is
// removed entry by entry when the process ends. [Sweep] removes the directories of killed processes: unlocked
// directories with a matching name, and in them only entries that crishim creates. Nothing is removed recursively.
package rundir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/filelock"
	"github.com/crishim/crishim/internal/lazyregexp"
)

const (
	rootBase = "/run/crishim"
	tmpBase  = "/tmp"

	idBytes = 8
	longest = len("/c.0123456789abcdef") // the temporary name of ssh's control socket
	maxFile = 64 << 10
)

// MaxSocketPath is the kernel's limit for the path of a unix socket in bytes.
const MaxSocketPath = 107

type Kind struct {
	Name    string             // the directory's name is Name-ID
	Entries *lazyregexp.Regexp // matches the relative path of each possible entry
}

type Dir struct {
	Path string
	kind Kind
	root *os.Root
	lock *os.File
}

// Base creates and returns the base directory: /run/crishim for root, or crishim in $XDG_RUNTIME_DIR for other users.
// The fallback is /tmp/crishim-UID, if /run/crishim is not writable or $XDG_RUNTIME_DIR is not a directory that only
// the user can write to. $TMPDIR is not used, because it may be too long for a socket or writable for others. A nil
// lookup is an empty environment.
func Base(lookup func(string) (string, bool)) (string, error) {
	uid := os.Geteuid()
	if uid == 0 {
		// The directory also contains the socket of serve. serve and its systemd unit create it with this mode, too.
		if makeBase(rootBase, 0o755) == nil {
			return rootBase, nil
		}
	}
	if uid != 0 && lookup != nil {
		if dir, ok := lookup("XDG_RUNTIME_DIR"); ok && filepath.IsAbs(dir) && check(dir, 0o022) == nil {
			base := filepath.Join(dir, "crishim")
			return base, makeBase(base, 0o700)
		}
	}
	base := filepath.Join(tmpBase, "crishim-"+strconv.Itoa(uid))
	return base, makeBase(base, 0o700)
}

// makeBase fails on a read-only file system, such as /run in some containers.
func makeBase(dir string, mode fs.FileMode) error {
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := check(dir, 0o777&^mode); err != nil {
		return err
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return &fs.PathError{Op: "write to", Path: dir, Err: err}
	}
	return nil
}

func check(dir string, forbidden fs.FileMode) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	return checkInfo(dir, info, forbidden)
}

func checkInfo(dir string, info fs.FileInfo, forbidden fs.FileMode) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() || info.Mode()&forbidden != 0 {
		return fmt.Errorf("%s must be a directory of mode %04o that belongs to uid %d", dir, 0o777&^forbidden, os.Geteuid())
	}
	return nil
}

func OpenPrivate(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	opened, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	named, err := os.Lstat(dir)
	if err == nil && !os.SameFile(opened, named) {
		err = fmt.Errorf("%s is a symbolic link", dir)
	}
	if err == nil {
		err = checkInfo(dir, opened, 0o077)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// ReadFile reads a small regular file in an open directory. It follows no link.
func ReadFile(root *os.Root, name string) ([]byte, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !opened.Mode().IsRegular() || !os.SameFile(info, opened) {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return bounded.ReadAll(f, maxFile)
}

func New(base string, kind Kind) (*Dir, error) {
	if length := len(base) + len("/-") + len(kind.Name) + 2*idBytes + longest; length > MaxSocketPath {
		return nil, fmt.Errorf("%s is too long: the path of a socket in it has %d bytes, a unix socket allows %d", base, length, MaxSocketPath)
	}
	for {
		id := make([]byte, idBytes)
		_, _ = rand.Read(id) // never fails
		name := filepath.Join(base, kind.Name+"-"+hex.EncodeToString(id))
		if err := os.Mkdir(name, 0o700); err != nil {
			return nil, err
		}
		// Another command's sweep may remove the directory before it is locked.
		if d, err := open(name, kind); d != nil || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
	}
}

func open(name string, kind Kind) (*Dir, error) {
	root, err := OpenPrivate(name)
	if err != nil {
		return nil, err
	}
	lock, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	d := &Dir{Path: name, kind: kind, root: root, lock: lock}
	if ok, err := filelock.TryDir(lock, unix.LOCK_EX); !ok {
		return nil, errors.Join(err, d.close())
	}
	if _, err := os.Lstat(name); err != nil { // removed by its owner in the meantime
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *Dir) close() error { return errors.Join(d.lock.Close(), d.root.Close()) }

// Remove keeps the directory if it contains entries that crishim did not create.
func (d *Dir) Remove() error {
	err := d.empty(".")
	if err == nil {
		err = os.Remove(d.Path)
	}
	return errors.Join(err, d.close())
}

func (d *Dir) empty(sub string) error {
	f, err := d.root.Open(sub)
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	errs := []error{err, f.Close()}
	for _, entry := range entries {
		name := path.Join(sub, entry.Name())
		if !d.kind.Entries.MatchString(name) {
			errs = append(errs, fmt.Errorf("%s is left there: %s is not crishim's", d.Path, strconv.Quote(name)))
			continue
		}
		if entry.IsDir() {
			if err := d.empty(name); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		errs = append(errs, d.root.Remove(name))
	}
	return errors.Join(errs...)
}

// Sweep removes the directories of this user's killed commands after finish has succeeded for them. Errors are ignored,
// because no command needs the removal to succeed.
func Sweep(base string, kind Kind, finish func(dir string) error) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, entry := range entries {
		id, ok := strings.CutPrefix(entry.Name(), kind.Name+"-")
		if raw, err := hex.DecodeString(id); !ok || err != nil || len(raw) != idBytes || strings.ToLower(id) != id || !entry.IsDir() {
			continue
		}
		d, err := open(filepath.Join(base, entry.Name()), kind)
		if d == nil || err != nil {
			continue
		}
		if finish != nil && finish(d.Path) != nil {
			_ = d.close()
			continue
		}
		_ = d.Remove()
	}
}
