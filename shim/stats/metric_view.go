package stats

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/host"
)

// containerView is what the metrics of one container are taken from.
type containerView struct {
	m       sample
	started uint64 // seconds since 1970
	spec    specView
	fs      *fsView

	files, sockets, openFiles *uint64
	hugepages, hugepagesMax   []labelled
}

type specView struct{ period, quota, shares, memory, reservation, swap uint64 }

// fsView is the file system that a container writes to.
type fsView struct {
	device                         string
	used, size, inodes, inodesFree uint64
}

// view looks at a container on this host.
func (s *Service) view(t target, m sample, until time.Time) (*containerView, error) {
	started, err := convert.UnixNano(t.c.State.StartedAt)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", t.c.ID, err)
	}
	v := &containerView{m: m, started: uint64(started) / 1e9, spec: spec(t.c.HostConfig), fs: s.filesystem(t, until)}
	dirs, err := host.Cgroups(t.c.State.Pid, t.c.ID)
	if err != nil {
		return v, nil
	}
	v.hugepages, v.hugepagesMax = hugepages(dirs)
	v.openFiles = openFilesLimit(t.c.State.Pid)
	v.descriptors(pids(processDir(dirs)))
	return v, nil
}

func processDir(dirs host.CgroupDirs) string {
	if dirs.V2() {
		return dirs[""]
	}
	return anyDir(dirs)
}

// defaultPeriod is the kernel's, where a container has none of its own.
const defaultPeriod = 100000

func spec(h *container.HostConfig) specView {
	v := specView{
		period: positive(h.CPUPeriod), quota: positive(h.CPUQuota), shares: positive(h.CPUShares),
		memory: positive(h.Memory), reservation: positive(h.MemoryReservation), swap: positive(h.MemorySwap),
	}
	if v.period == 0 {
		v.period = defaultPeriod
	}
	return v
}

func positive(n int64) uint64 { return uint64(max(n, 0)) }

func (s *Service) filesystem(t target, until time.Time) *fsView {
	size, ok := s.layer(t, until)
	if !ok {
		return nil
	}
	on := cmp.Or(t.c.GraphDriver.Data["UpperDir"], size.root)
	var st syscall.Statfs_t
	if syscall.Statfs(on, &st) != nil {
		return nil
	}
	v := &fsView{used: size.bytes, size: st.Blocks * uint64(st.Bsize), inodes: st.Files, inodesFree: st.Ffree}
	var dir syscall.Stat_t
	if syscall.Stat(on, &dir) == nil {
		v.device = deviceName(dir.Dev)
	}
	return v
}

// deviceName is the device's path where the kernel names one, else its numbers.
func deviceName(dev uint64) string {
	numbers := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	target, err := os.Readlink("/sys/dev/block/" + numbers)
	if err != nil {
		return numbers
	}
	return "/dev/" + filepath.Base(target)
}

func deviceNumbers(device string) (major, minor string) {
	major, minor, _ = strings.Cut(device, ":")
	return major, minor
}

// descriptors counts what the processes have open. A process that ends
// meanwhile, or belongs to somebody else, is left out.
func (v *containerView) descriptors(processes []int) {
	var files, sockets uint64
	for _, pid := range processes {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		files += uint64(len(entries))
		for _, e := range entries {
			if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.HasPrefix(target, "socket:") {
				sockets++
			}
		}
	}
	v.files, v.sockets = &files, &sockets
}

func openFilesLimit(pid int) *uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, "Max open files")
		if f := strings.Fields(rest); ok && len(f) > 0 {
			n, err := strconv.ParseUint(f[0], 10, 64)
			return pointer(n, err == nil)
		}
	}
	return nil
}

// hugepages reads one pair of files per page size.
func hugepages(dirs host.CgroupDirs) (usage, highest []labelled) {
	dir, current, peak := dirs["hugetlb"], ".usage_in_bytes", ".max_usage_in_bytes"
	if dirs.V2() {
		dir, current, peak = dirs[""], ".current", ".max_usage_in_bytes"
	}
	if dir == "" {
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "hugetlb.*"+current))
	if err != nil {
		return nil, nil
	}
	for _, f := range files {
		size := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "hugetlb."), current)
		if strings.Contains(size, ".") {
			continue // reservations
		}
		if n, ok := number(dir, filepath.Base(f)); ok {
			usage = append(usage, labelled{n, []string{size}})
		}
		if n, ok := number(dir, "hugetlb."+size+peak); ok {
			highest = append(highest, labelled{n, []string{size}})
		}
	}
	return usage, highest
}
