package output

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Usage is one container or pod of a stats table: what the runtime measured
// and what the caller computed from it. A negative number is not known.
type Usage struct {
	ID, Name, Pod, Namespace string
	CPUPercent               float64
	Memory, MemoryLimit      int64 // working set and limit in bytes; limit 0: none
	Disk, Inodes, Swap       int64
	NetworkIn, NetworkOut    int64 // bytes since the pod started
	BlockRead, BlockWrite    int64 // bytes since the container started
	Pids                     int64
}

// The first columns of the two stats tables.
const (
	containerSubject = "CONTAINER"
	podSubject       = "POD ID"
)

// unknownCell stands for a number that is not known.
const unknownCell = "-"

func bytesCell(n int64) string {
	if n < 0 {
		return unknownCell
	}
	return size(uint64(n))
}

func countCell(n int64) string {
	if n < 0 {
		return unknownCell
	}
	return fmt.Sprint(n)
}

func percentCell(p float64) string {
	if p < 0 {
		return unknownCell
	}
	return fmt.Sprintf("%.2f", p)
}

func pairCell(a, b int64) string {
	if a < 0 && b < 0 {
		return unknownCell
	}
	return bytesCell(a) + " / " + bytesCell(b)
}

func memoryPercent(u Usage) string {
	if u.Memory < 0 || u.MemoryLimit <= 0 {
		return unknownCell
	}
	return percentCell(100 * float64(u.Memory) / float64(u.MemoryLimit))
}

// usageColumns makes the columns of a stats table whose first one is subject.
func usageColumns(subject string) []column[Usage] {
	number := func(f func(Usage) int64) func(a, b Usage) int {
		return func(a, b Usage) int { return cmp.Compare(f(a), f(b)) }
	}
	return []column[Usage]{
		{name: subject, value: func(u Usage, o Options) string { return shortID(u.ID, o) }},
		{name: "NAME", shrink: true, wide: subject == podSubject, value: func(u Usage, _ Options) string { return u.Name }},
		{name: "POD", shrink: true, value: func(u Usage, _ Options) string { return cmp.Or(strings.Trim(u.Namespace+"/"+u.Pod, "/"), unknownCell) }},
		{name: "CPU %", value: func(u Usage, _ Options) string { return percentCell(u.CPUPercent) },
			less: func(a, b Usage) int { return cmp.Compare(a.CPUPercent, b.CPUPercent) }},
		{name: "MEM", value: func(u Usage, _ Options) string { return bytesCell(u.Memory) },
			less: number(func(u Usage) int64 { return u.Memory })},
		{name: "LIMIT", spare: 3, value: func(u Usage, _ Options) string {
			if u.MemoryLimit <= 0 {
				return unknownCell
			}
			return bytesCell(u.MemoryLimit)
		}},
		{name: "MEM %", value: func(u Usage, _ Options) string { return memoryPercent(u) }},
		{name: "DISK", spare: 1, value: func(u Usage, _ Options) string { return bytesCell(u.Disk) },
			less: number(func(u Usage) int64 { return u.Disk })},
		{name: "INODES", wide: true, value: func(u Usage, _ Options) string { return countCell(u.Inodes) }},
		{name: "SWAP", wide: true, value: func(u Usage, _ Options) string { return bytesCell(u.Swap) }},
		{name: "NET I/O", spare: 4, value: func(u Usage, _ Options) string { return pairCell(u.NetworkIn, u.NetworkOut) }},
		{name: "BLOCK I/O", spare: 2, value: func(u Usage, _ Options) string { return pairCell(u.BlockRead, u.BlockWrite) }},
		{name: "PIDS", value: func(u Usage, _ Options) string { return countCell(u.Pids) },
			less: number(func(u Usage) int64 { return u.Pids })},
	}
}

// crictlUsageColumns are those that crictl's two stats tables have. What is not known is 0
// there, as swap is on containerd.
func crictlUsageColumns(subject string) []column[Usage] {
	names := []string{containerSubject, "NAME", "CPU %", "MEM", "DISK", "INODES", "SWAP"}
	if subject == podSubject {
		names = []string{"NAME", podSubject, "CPU %", "MEM"}
	}
	var chosen []column[Usage]
	for _, name := range names {
		c, _ := find(usageColumns(subject), name) // it has them all
		c.wide = false
		value := c.value
		c.value = func(u Usage, o Options) string {
			u.CPUPercent = max(u.CPUPercent, 0)
			for _, n := range []*int64{&u.Memory, &u.Disk, &u.Inodes, &u.Swap} {
				*n = max(*n, 0)
			}
			return value(u, o)
		}
		if subject == podSubject && name == "NAME" {
			c.name = "POD"
		}
		chosen = append(chosen, c)
	}
	return chosen
}

// ContainerStats writes a list of container stats: the messages for machines,
// usages (computed from two samples) as a table.
func ContainerStats(w io.Writer, r *runtimeapi.ListContainerStatsResponse, usages []Usage, o Options) error {
	return renderUsage(w, messages(r.GetStats()), containerSubject, usages, o)
}

// PodStats writes a list of pod stats like ContainerStats.
func PodStats(w io.Writer, r *runtimeapi.ListPodSandboxStatsResponse, usages []Usage, o Options) error {
	return renderUsage(w, messages(r.GetStats()), podSubject, usages, o)
}

func renderUsage(w io.Writer, items func() ([][]byte, error), subject string, usages []Usage, o Options) error {
	return render(w, view{
		fallback: Table, items: items, wrap: list("stats"),
		ids: func() []string { return each(usages, func(u Usage) string { return u.ID }) },
		names: func() []string {
			return each(usages, func(u Usage) string {
				if subject == podSubject {
					return u.Namespace + "/" + u.Pod
				}
				return strings.TrimSuffix(strings.Join([]string{u.Namespace, u.Pod, u.Name}, "/"), "/")
			})
		},
		table: func(w io.Writer, o Options) error {
			columns := usageColumns(subject)
			if o.Crictl && o.Format.Kind == Table && len(o.Columns) == 0 && o.Sort == "" {
				columns = crictlUsageColumns(subject)
			}
			return writeTable(w, usages, columns, o)
		},
	}, o)
}
