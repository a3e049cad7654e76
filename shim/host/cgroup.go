package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/crishim/crishim/shim/host/proctree"
)

// ErrElsewhere: the process is not on this host, or not visible from here.
var ErrElsewhere = errors.New("the container's processes are not visible from here")

// cgroupRoot is where cgroup file systems are mounted.
const cgroupRoot = "/sys/fs/cgroup"

// CgroupDirs are the directories of one cgroup: by controller on version 1, the
// one directory under the empty name on version 2.
type CgroupDirs map[string]string

// V2 says whether the host has the unified hierarchy.
func (d CgroupDirs) V2() bool { return d[""] != "" && len(d) == 1 }

// Of is the directory that holds a control file such as "memory.max".
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

// Cgroups finds the cgroup of a container's process. That the cgroup's name
// holds the container's id proves that the process is the one that the engine
// means: an engine elsewhere would name a process that is somebody else here.
func Cgroups(pid int, id string) (CgroupDirs, error) { return CgroupsIn("/proc", cgroupRoot, pid, id) }

// CgroupsIn is Cgroups for a host whose files are elsewhere.
func CgroupsIn(proc, root string, pid int, id string) (CgroupDirs, error) {
	if pid <= 0 || id == "" {
		return nil, ErrElsewhere
	}
	b, err := os.ReadFile(filepath.Join(proc, fmt.Sprint(pid), "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrElsewhere, err)
	}
	dirs := CgroupDirs{}
	own := false
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		own = own || proctree.Named(parts[2], id)
		addHierarchy(dirs, root, parts[1], parts[2])
	}
	if !own {
		return nil, ErrElsewhere
	}
	return dirs, nil
}

// addHierarchy adds what one line of /proc/PID/cgroup stands for. A host with
// both versions mounts the unified one elsewhere and without controllers.
func addHierarchy(dirs CgroupDirs, root, controllers, path string) {
	if controllers == "" {
		if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
			dirs[""] = filepath.Join(root, path)
		}
		return
	}
	for controller := range strings.SplitSeq(controllers, ",") {
		if strings.HasPrefix(controller, "name=") {
			continue
		}
		dirs[controller] = filepath.Join(mountOf(root, controller, controllers), path)
	}
}

// mounts has what mountOf found: hierarchies stay where they are, and a list of
// containers asks a dozen times for each.
var mounts sync.Map

// mountOf is where a controller's hierarchy is mounted: under its own name, often
// a link, or under those of all its controllers.
func mountOf(root, controller, controllers string) string {
	dir := filepath.Join(root, controller)
	if found, ok := mounts.Load(dir); ok {
		return found.(string)
	}
	if _, err := os.Stat(dir); err != nil {
		together := filepath.Join(root, controllers)
		if _, err := os.Stat(together); err != nil {
			return dir // not mounted, for now
		}
		mounts.Store(dir, together)
		return together
	}
	mounts.Store(dir, dir)
	return dir
}
