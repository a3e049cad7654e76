// Package procroot opens the files of a running container through /proc, for containers without a tar. Paths are
// resolved as by the container's own processes: no symbolic link leads out of the container's root directory.
//
// The package trusts neither the container nor its runtime: it accepts a process id only if the kernel confirms that
// the process belongs to the container. A process id from another machine or from inside a virtual machine therefore
// never opens files of this machine.
package procroot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/proctree"
)

// Root is the root directory of a container.
type Root struct {
	dir      *os.File
	uid, gid int // the container's user, in ids of this machine
	uids     idMap
	gids     idMap
}

// Open opens the root directory of a container by its id and one of its processes. It needs root.
func Open(pid int, containerID string) (*Root, error) {
	return open(pid, func(groups string) bool { return proctree.Named(groups, containerID) })
}

func open(pid int, own func(groups string) bool) (*Root, error) {
	// An open directory /proc/PID keeps referring to the same process, even if the pid is reused.
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

// belongs checks that the process is in a cgroup of the container, and not in the mount namespace of crishim or of pid 1.
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
			continue // in a container, crishim has no permission for the machine's pid 1
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

// Close closes the directory.
func (r *Root) Close() error { return r.dir.Close() }

// IsDir reports whether a path is a directory or a symbolic link to one.
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

// Dir opens a directory.
func (r *Root) Dir(path string) (*os.Root, error) {
	f, err := r.resolve(path, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}

// resolve finds a file without opening it, because it may be a pipe or a device. It rejects the links of /proc, such as
// /proc/1/root, because they lead out of any root directory.
func (r *Root) resolve(path string, flags uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	var fd int
	err := error(unix.EAGAIN)
	// For a path with "..", the kernel returns EAGAIN if anything on the host was renamed or mounted meanwhile. The
	// number of tries is limited, because a container can rename files all the time.
	for tries := 0; tries < 1000 && errors.Is(err, unix.EAGAIN); tries++ {
		fd, err = unix.Openat2(int(r.dir.Fd()), filepath.Join("/", path), &how)
	}
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return nil, errors.New("needs Linux 5.6 or later, and permission for openat2")
	}
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s leads through a link of /proc, or too many links", path)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

const (
	nobody = 65534 // the kernel's id for an unmapped owner in a user namespace
	keep   = -1    // for chown: leave the id as it is
)

// idMap maps the ids of a user namespace to ids of this machine.
type idMap []idRange

type idRange struct{ inside, outside, count int64 }

func (m idMap) host(id int) int {
	for _, r := range m {
		if n := int64(id) - r.inside; n >= 0 && n < r.count {
			return int(r.outside + n)
		}
	}
	return keep
}

func (m idMap) container(id int) int {
	for _, r := range m {
		if n := int64(id) - r.outside; n >= 0 && n < r.count {
			return int(r.inside + n)
		}
	}
	return nobody
}

func parseIDMap(text []byte) (idMap, error) {
	var m idMap
	for line := range strings.Lines(string(text)) {
		var r idRange
		if _, err := fmt.Sscan(line, &r.inside, &r.outside, &r.count); err != nil {
			return nil, fmt.Errorf("line %q of an id map: %w", strings.TrimSuffix(line, "\n"), err)
		}
		m = append(m, r)
	}
	return m, nil
}

func (r *Root) identity(process *os.Root) error {
	for file, m := range map[string]*idMap{"uid_map": &r.uids, "gid_map": &r.gids} {
		text, err := process.ReadFile(file)
		if err == nil {
			*m, err = parseIDMap(text)
		}
		if err != nil {
			return err
		}
	}
	text, err := process.ReadFile("status")
	if err != nil {
		return err
	}
	for field, id := range map[string]*int{"Uid:": &r.uid, "Gid:": &r.gid} {
		_, rest, _ := strings.Cut(string(text), "\n"+field)
		var real, effective int
		if _, err := fmt.Sscan(rest, &real, &effective); err != nil {
			return fmt.Errorf("%s of the container's process: %w", field, err)
		}
		*id = effective
	}
	return nil
}

// Host maps an owner in the container to the owner on this machine.
func (r *Root) Host(uid, gid int) (int, int) { return r.uids.host(uid), r.gids.host(gid) }

// Container maps an owner on this machine to the owner in the container.
func (r *Root) Container(uid, gid int) (int, int) {
	return r.uids.container(uid), r.gids.container(gid)
}

// Process maps every owner to the user of the container's process.
func (r *Root) Process(int, int) (int, int) { return r.uid, r.gid }
