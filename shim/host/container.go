package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/cgroups"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/proctree"
)

// ErrElsewhere means that the process is not on this host or not visible to the shim.
var ErrElsewhere = errors.New("the container's processes are not visible from here")

const cgroupRoot = "/sys/fs/cgroup"

// CgroupDirs are the directories of a cgroup by controller; for version 2 the key is "".
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
			continue // the process has ended or has set its own score
		}
		err := os.WriteFile(path(pid), []byte(strconv.Itoa(score)), 0o644)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// systemdProperties are the properties of a scope that systemd writes into files of its cgroup.
var systemdProperties = map[string]string{"memory.high": "MemoryHigh", "memory.low": "MemoryLow", "memory.min": "MemoryMin"}

// TellSystemd sets limits of a container as properties of its scope, if it has one. Without the properties systemd would
// reset the cgroup files at each daemon-reload. Callers must write the files after TellSystemd, because systemd also
// resets files without a property, such as memory.oom.group. Errors are ignored: if a value is invalid, the later write
// of the file fails.
func (d CgroupDirs) TellSystemd(ctx context.Context, files map[string]string) {
	scope := filepath.Base(d[""])
	var properties []string
	set := func(property, value string) {
		switch _, err := strconv.ParseUint(value, 10, 64); {
		case err == nil:
			properties = append(properties, property+"="+value)
		case value == "max":
			properties = append(properties, property+"=infinity")
		}
	}
	for file, property := range systemdProperties {
		set(property, files[file])
	}
	if !d.V2() || !strings.HasSuffix(scope, ".scope") || len(properties) == 0 {
		return
	}
	// When one memory limit is set, systemd writes all of them. The swap limit must be a property, too, because the engine
	// writes a limit of zero to the file only.
	swap := files["memory.swap.max"]
	if now, err := os.ReadFile(filepath.Join(d[""], "memory.swap.max")); swap == "" && err == nil {
		swap = strings.TrimSpace(string(now))
	}
	set("MemorySwapMax", swap)
	slices.Sort(properties)
	_ = exec.CommandContext(ctx, "systemctl", slices.Concat([]string{"set-property", "--runtime", "--", scope}, properties)...).Run()
}

// Cgroups finds the cgroup of a container's process. The container's id in the cgroup's name proves that the engine's
// process is on this host.
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
		// A hierarchy of version 2 has the file cgroup.controllers in its root. A host with both versions mounts that
		// hierarchy elsewhere and without controllers, so it is skipped.
		if len(g.Controllers) == 0 && mounted["cgroup.controllers"] != "" {
			dirs[""] = filepath.Join(root, g.Path)
		}
	}
	if !own {
		return nil, ErrElsewhere
	}
	return dirs, nil
}

// hierarchies returns the mount points of version 1's controllers. Joint mounts are also listed under their combined
// name.
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

// NetNS returns a path of a container's network namespace: the engine's file, or a descriptor of this process that is
// valid until done is called. It is "" if the container has ended or is on another host. A path with the pid would
// refer to another namespace if the pid is reused.
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
	if !found.Alive() { // the pid may have been reused
		_ = f.Close()
		return "", func() {}
	}
	// /proc/self would not work in plugins and their children.
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), func() { _ = f.Close() }
}
