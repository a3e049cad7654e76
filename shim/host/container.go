package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/cgroups"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/proctree"
)

// ErrElsewhere: the process is not on this host, or not visible from here.
var ErrElsewhere = errors.New("the container's processes are not visible from here")

const cgroupRoot = "/sys/fs/cgroup"

// CgroupDirs are a cgroup's directories by controller, or under "" on version 2.
type CgroupDirs map[string]string

func (d CgroupDirs) V2() bool { return d[""] != "" && len(d) == 1 }

func (d CgroupDirs) Of(file string) (string, error) {
	if d.V2() {
		return d[""], nil
	}
	controller, _, _ := strings.Cut(file, ".")
	if dir := d[controller]; dir != "" {
		return dir, nil
	}
	return "", fmt.Errorf("the host has no cgroup controller %s", controller)
}

func (d CgroupDirs) SetOOMScore(first, score int) error {
	path := func(pid int) string {
		return filepath.Join(procfs.DefaultMountPoint, strconv.Itoa(pid), "oom_score_adj")
	}
	before, err := os.ReadFile(path(first))
	if err != nil {
		return err
	}
	pids := []int{first}
	for _, dir := range d {
		if pids, err = cgroups.GetPids(dir); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, pid := range pids {
		if now, err := os.ReadFile(path(pid)); err != nil || !bytes.Equal(now, before) {
			continue // it has ended, or chose its own
		}
		err := os.WriteFile(path(pid), []byte(strconv.Itoa(score)), 0o644)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Cgroups finds the cgroup of a container's process. The container's id in its name proves that the engine's process
// is on this host.
func Cgroups(pid int, id string) (CgroupDirs, error) {
	return cgroupsIn(procfs.DefaultMountPoint, cgroupRoot, mounted(), pid, id)
}

var mounted = sync.OnceValue(func() map[string]string { return hierarchies(cgroupRoot) })

func cgroupsIn(proc, root string, mounted map[string]string, pid int, id string) (CgroupDirs, error) {
	if pid <= 0 || id == "" {
		return nil, ErrElsewhere
	}
	var process procfs.Proc
	var groups []procfs.Cgroup
	fs, err := procfs.NewFS(proc)
	if err == nil {
		process, err = fs.Proc(pid)
	}
	if err == nil {
		groups, err = process.Cgroups()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrElsewhere, err)
	}
	dirs := CgroupDirs{}
	own := false
	for _, g := range groups {
		own = own || proctree.Named(g.Path, id)
		for _, controller := range g.Controllers {
			if dir := mounted[controller]; dir != "" {
				dirs[controller] = filepath.Join(dir, g.Path)
			}
		}
		// A host with both versions mounts the unified one elsewhere and without controllers.
		if len(g.Controllers) == 0 && mounted["cgroup.controllers"] != "" {
			dirs[""] = filepath.Join(root, g.Path)
		}
	}
	if !own {
		return nil, ErrElsewhere
	}
	return dirs, nil
}

// hierarchies returns where version 1's controllers are mounted, several also under the names of them all.
func hierarchies(root string) map[string]string {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	dirs := map[string]string{}
	for _, e := range entries {
		for controller := range strings.SplitSeq(e.Name(), ",") {
			if dirs[controller] == "" || controller == e.Name() {
				dirs[controller] = filepath.Join(root, e.Name())
			}
		}
	}
	return dirs
}

const nsfsMagic = 0x6e736673

// NetNS returns a path of a container's network namespace, "" if it is not on this host or has ended: the engine's
// file, or a descriptor of this process until done is called. A path through the pid may lead to another namespace
// once the pid is used again.
func NetNS(containerID, engineFile string, pid int) (path string, done func()) {
	var st unix.Statfs_t
	if engineFile != "" && unix.Statfs(engineFile, &st) == nil && int64(st.Type) == nsfsMagic {
		return engineFile, func() {}
	}
	found, err := proctree.Find(pid)
	if err != nil || !found.InContainer(containerID) {
		return "", func() {}
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return "", func() {}
	}
	if !found.Alive() { // what was opened may be of another process
		_ = f.Close()
		return "", func() {}
	}
	// Not /proc/self: the path is for plugins, and for what they ask to do their work.
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), func() { _ = f.Close() }
}
