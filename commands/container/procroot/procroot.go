// Package procroot opens the files of a running container through /proc, for
// containers that have no program to copy with. Paths are looked up as the
// container's own processes would: a link that is absolute, or climbs, starts
// over at the container's root, and none leads to the machine's files.
//
// The container is not trusted, its runtime is: a process id is taken only when
// the kernel says too that it belongs to the container, so that neither the
// answer of a runtime on another machine nor one about a virtual machine opens
// files of this one.
package procroot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/shim/host/proctree"
)

// Root is the root directory of a container.
type Root struct {
	dir      *os.File
	uid, gid int // of the container's process, as this machine counts
	uids     idMap
	gids     idMap
}

// Open opens the root directory of the container with this id, to which the
// process pid belongs. It needs the rights of root.
func Open(pid int, containerID string) (*Root, error) {
	return open(pid, func(groups string) bool { return proctree.Named(groups, containerID) })
}

func open(pid int, own func(groups string) bool) (*Root, error) {
	// The directory of a process, once it is open, is never another's, also when
	// the number is used again.
	process, err := os.OpenRoot(filepath.Join("/proc", strconv.Itoa(pid)))
	if err != nil {
		return nil, fmt.Errorf("its process %d is not on this machine", pid)
	}
	defer process.Close()
	if err := belongs(process, pid, own); err != nil {
		return nil, err
	}
	r := &Root{}
	if err := r.identity(process); err != nil {
		return nil, err
	}
	d, err := process.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	fd, err := unix.Openat(int(d.Fd()), "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("looking into process %d needs root", pid)
	}
	if err != nil {
		return nil, fmt.Errorf("open the root directory of process %d: %w", pid, err)
	}
	r.dir = os.NewFile(uintptr(fd), "/")
	return r, nil
}

// belongs asks the kernel whether the process is the container's.
func belongs(process *os.Root, pid int, own func(groups string) bool) error {
	groups, err := process.ReadFile("cgroup")
	if err != nil || !own(string(groups)) {
		return fmt.Errorf("process %d is not known to be its own: it is in no cgroup of the container", pid)
	}
	mounts, err := process.Readlink("ns/mnt")
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("looking into process %d needs root", pid)
	}
	if err != nil {
		return err
	}
	for _, own := range []string{"/proc/self/ns/mnt", "/proc/1/ns/mnt"} {
		other, err := os.Readlink(own)
		if errors.Is(err, fs.ErrPermission) {
			continue // in a container of its own crishim may not look at the machine's first process, nor then at its like
		}
		if err != nil {
			return err
		}
		if other == mounts {
			return fmt.Errorf("process %d sees the files of this machine", pid)
		}
	}
	return nil
}

// Close ends the use of the directory.
func (r *Root) Close() error { return r.dir.Close() }

// IsDir asks whether a path is a directory or a link to one.
func (r *Root) IsDir(path string) (bool, error) {
	f, err := r.resolve(path, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return false, nil
	case err != nil:
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	return err == nil && info.IsDir(), err
}

// Dir opens a directory. What is done through it stays below it.
func (r *Root) Dir(path string) (*os.Root, error) {
	f, err := r.resolve(path, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}

// resolve looks a path up without opening what it finds, which may be a pipe
// or a device. Links of /proc, such as /proc/1/root, lead to files and not to
// paths, which may be anybody's; they are not followed.
func (r *Root) resolve(path string, flags uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(r.dir.Fd()), filepath.Join("/", path), &how)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return nil, errors.New("it takes a kernel of 5.6 or later that allows openat2")
	}
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s leads through a link of /proc, or too many links", path)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
