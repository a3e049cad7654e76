package top

import (
	"fmt"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/output"
)

// nodeUsage has the figures of the machine, as a message to the model. Unknown figures are negative.
type nodeUsage struct {
	Load                [3]float64
	MemUsed, MemTotal   int64
	CPU, Memory, IO     float64 // pressure: per cent of the last 10 seconds that some process had to wait
	Images              int64   // bytes that images take
	DiskUsed, DiskTotal int64   // of the file system of the images
}

func unknownNode() nodeUsage {
	return nodeUsage{
		Load: [3]float64{unknown, unknown, unknown}, MemUsed: unknown, MemTotal: unknown, CPU: unknown, Memory: unknown, IO: unknown,
		Images: unknown, DiskUsed: unknown, DiskTotal: unknown,
	}
}

// readNode reads the kernel's figures below a directory such as /proc.
func readNode(proc string) nodeUsage {
	n := unknownNode()
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return n
	}
	if load, err := fs.LoadAvg(); err == nil {
		n.Load = [3]float64{load.Load1, load.Load5, load.Load15}
	}
	if memory, err := fs.Meminfo(); err == nil && memory.MemTotalBytes != nil && memory.MemAvailableBytes != nil {
		n.MemTotal, n.MemUsed = int64(*memory.MemTotalBytes), int64(*memory.MemTotalBytes-*memory.MemAvailableBytes)
	}
	for resource, to := range map[string]*float64{"cpu": &n.CPU, "memory": &n.Memory, "io": &n.IO} {
		if psi, err := fs.PSIStatsForResource(resource); err == nil && psi.Some != nil { // some kernels do not have it
			*to = psi.Some.Avg10
		}
	}
	return n
}

// addDisk adds the space of the file system that a directory is on.
func (n *nodeUsage) addDisk(directory string) {
	var fs unix.Statfs_t
	if directory == "" || unix.Statfs(directory, &fs) != nil {
		return
	}
	n.DiskTotal = int64(fs.Blocks) * fs.Bsize
	n.DiskUsed = n.DiskTotal - int64(fs.Bavail)*fs.Bsize // space reserved for root counts as used, as in doctor and the kubelet
}

// line describes the node. For a narrow terminal it uses shorter forms and omits figures. It does not truncate the
// line.
func (n nodeUsage) line(width int) string {
	var parts []string
	wide := width >= 120
	if n.Load[0] >= 0 {
		parts = append(parts, fmt.Sprintf("load %.2f %.2f %.2f", n.Load[0], n.Load[1], n.Load[2]))
	}
	if n.MemTotal > 0 {
		parts = append(parts, used("mem", n.MemUsed, n.MemTotal, wide))
	}
	if n.CPU >= 0 || n.Memory >= 0 || n.IO >= 0 {
		if wide {
			parts = append(parts, fmt.Sprintf("pressure cpu %s%% mem %s%% io %s%%", percent(n.CPU), percent(n.Memory), percent(n.IO)))
		} else {
			parts = append(parts, fmt.Sprintf("psi %s/%s/%s%%", percent(n.CPU), percent(n.Memory), percent(n.IO)))
		}
	}
	if n.DiskTotal > 0 {
		what := "disk" // the file system of the images
		if wide {
			what = "image disk"
		}
		parts = append(parts, used(what, n.DiskUsed, n.DiskTotal, wide))
	}
	if n.Images >= 0 && (width >= 150 || n.DiskTotal <= 0) {
		parts = append(parts, "images "+output.Bytes(n.Images))
	}
	if parts == nil {
		return "the figures of the node are not known from here"
	}
	return strings.Join(parts, "  ")
}

func used(what string, used, total int64, wide bool) string {
	share := 100 * float64(used) / float64(total)
	if wide {
		return fmt.Sprintf("%s %s of %s (%.0f%%)", what, output.Bytes(used), output.Bytes(total), share)
	}
	return fmt.Sprintf("%s %.0f%% of %s", what, share, output.Bytes(total))
}
