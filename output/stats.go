package output

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Usage is a row of a stats table. Negative numbers are unknown.
type Usage struct {
	ID, Name, Pod, Namespace string
	CPUPercent               float64
	Memory, MemoryLimit      int64 // working set and limit in bytes; limit 0: unlimited
	Disk, Inodes, Swap       int64
	NetworkIn, NetworkOut    int64 // bytes since the pod started
	BlockRead, BlockWrite    int64 // bytes since the container started
	Pids                     int64
}

const (
	containerSubject = "CONTAINER"
	podSubject       = "POD ID"
)

// Bytes returns a number of bytes as tables show it.
func Bytes(n int64) string {
	if n < 0 {
		return unknownCell
	}
	return size(uint64(n))
}

func known[N int64 | float64](format string, n N) string {
	if n < 0 {
		return unknownCell
	}
	return fmt.Sprintf(format, n)
}

func pairCell(a, b int64) string {
	if a < 0 && b < 0 {
		return unknownCell
	}
	return Bytes(a) + " / " + Bytes(b)
}

// usageColumns returns the columns of a stats table. The first is named subject.
func usageColumns(subject string) []column[Usage] {
	return []column[Usage]{
		{name: subject, value: func(u Usage, o Options) string { return shortID(u.ID, o) }},
		{name: "NAME", shrink: true, wide: subject == podSubject, value: func(u Usage, _ Options) string { return u.Name }},
		{name: "POD", shrink: true, least: 16, value: func(u Usage, _ Options) string { return cmp.Or(strings.Trim(u.Namespace+"/"+u.Pod, "/"), unknownCell) }},
		{name: "CPU %", number: func(u Usage) int64 { return int64(u.CPUPercent * 1e6) }, value: func(u Usage, _ Options) string { return known("%.2f", u.CPUPercent) }},
		{name: "MEM", number: func(u Usage) int64 { return u.Memory }, value: func(u Usage, _ Options) string { return Bytes(u.Memory) }},
		{name: "LIMIT", spare: 3, value: func(u Usage, _ Options) string { return Bytes(cmp.Or(u.MemoryLimit, -1)) }},
		{name: "MEM %", spare: 5, value: func(u Usage, _ Options) string {
			if u.Memory < 0 || u.MemoryLimit <= 0 {
				return unknownCell
			}
			return known("%.2f", 100*float64(u.Memory)/float64(u.MemoryLimit))
		}},
		{name: "DISK", spare: 1, number: func(u Usage) int64 { return u.Disk }, value: func(u Usage, _ Options) string { return Bytes(u.Disk) }},
		{name: "INODES", wide: true, value: func(u Usage, _ Options) string { return known("%d", u.Inodes) }},
		{name: "SWAP", wide: true, value: func(u Usage, _ Options) string { return Bytes(u.Swap) }},
		{name: "NET I/O", spare: 4, value: func(u Usage, _ Options) string { return pairCell(u.NetworkIn, u.NetworkOut) }},
		{name: "BLOCK I/O", spare: 2, value: func(u Usage, _ Options) string { return pairCell(u.BlockRead, u.BlockWrite) }},
		{name: "PIDS", spare: 6, number: func(u Usage) int64 { return u.Pids }, value: func(u Usage, _ Options) string { return known("%d", u.Pids) }},
	}
}

// crictlUsageColumns returns the columns of crictl's stats tables. They show unknown numbers as 0, for example swap on
// containerd.
func crictlUsageColumns(subject string) []column[Usage] {
	names := []string{containerSubject, "NAME", "CPU %", "MEM", "DISK", "INODES", "SWAP"}
	if subject == podSubject {
		names = []string{"NAME", podSubject, "CPU %", "MEM"}
	}
	var chosen []column[Usage]
	for _, name := range names {
		columns := usageColumns(subject)
		c := columns[slices.IndexFunc(columns, func(c column[Usage]) bool { return c.name == name })]
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

// ContainerStats writes container stats. JSON, YAML and templates contain the CRI messages. The table shows usages.
// A usage needs two samples if the runtime does not measure the CPU rate itself.
func ContainerStats(w io.Writer, r *runtimeapi.ListContainerStatsResponse, usages []Usage, o Options) error {
	return renderUsage(w, messages(r.GetStats()), containerSubject, usages, o)
}

func PodStats(w io.Writer, r *runtimeapi.ListPodSandboxStatsResponse, usages []Usage, o Options) error {
	return renderUsage(w, messages(r.GetStats()), podSubject, usages, o)
}

func renderUsage(w io.Writer, items func() ([][]byte, error), subject string, usages []Usage, o Options) error {
	return render(w, view{
		fallback: Table, items: items, key: "stats",
		ids: each(usages, func(u Usage) string { return u.ID }),
		names: each(usages, func(u Usage) string {
			if subject == podSubject {
				return u.Namespace + "/" + u.Pod
			}
			return strings.TrimSuffix(u.Namespace+"/"+u.Pod+"/"+u.Name, "/")
		}),
		table: func(w io.Writer, o Options) error {
			columns := usageColumns(subject)
			if o.Crictl && o.Format.Kind == Table && len(o.Columns) == 0 && o.Sort == "" {
				columns = crictlUsageColumns(subject)
			}
			return writeTable(w, usages, columns, o)
		},
	}, o)
}
