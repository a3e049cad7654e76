package stats

import (
	"time"

	"github.com/crishim/crishim/shim/host"
)

// sample is what was measured of one cgroup at one time. Pointers are nil where
// the kernel has no such number.
type sample struct {
	at     time.Time
	cpu    cpuSample
	memory memorySample
	swap   *swapSample
	io     ioSample

	processes uint64
	threads   *uint64
	maxThread *uint64
}

type cpuSample struct {
	usage, user, system uint64 // nanoseconds
	periods, throttled  uint64
	throttledTime       uint64 // nanoseconds
	pressure            *pressure
}

type memorySample struct {
	usage, workingSet, rss, cache, mapped uint64
	limit                                 uint64 // unlimited where there is none
	faults, majorFaults                   uint64
	maxUsage, failures, kernel, oomKills  uint64
	pressure                              *pressure
}

type swapSample struct{ usage, limit uint64 }

type ioSample struct {
	devices  []ioDevice
	pressure *pressure
}

// ioDevice is the traffic with one block device, by its numbers.
type ioDevice struct {
	device                string // "8:0"
	readBytes, writeBytes uint64
	reads, writes         uint64
}

// measure reads all files of a cgroup.
func measure(dirs host.CgroupDirs, at time.Time) sample {
	if dirs.V2() {
		return measureV2(dirs[""], at)
	}
	return measureV1(dirs, at)
}

// measureUsage reads a third of them: what the stats of containers and pods
// show. Which numbers those are is for a test to hold.
func measureUsage(dirs host.CgroupDirs, at time.Time) sample {
	if dirs.V2() {
		return usageV2(dirs[""], at)
	}
	return usageV1(dirs, at)
}

// sub is a-b, 0 where the two were read at unlucky moments.
func sub(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}

func pointer(n uint64, ok bool) *uint64 {
	if !ok {
		return nil
	}
	return &n
}
