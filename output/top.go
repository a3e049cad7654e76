package output

import "io"

// TopRow is a pod or container of `crishim top --once -o json`. Rates are in bytes per second. Unknown values are
// omitted.
type TopRow struct {
	Namespace   string   `json:"namespace,omitempty"`
	Name        string   `json:"name"`
	ID          string   `json:"id"`
	State       string   `json:"state"`
	Restarts    uint32   `json:"restarts"`
	CPUPercent  *float64 `json:"cpuPercent,omitempty"` // of one core
	Memory      *int64   `json:"memoryBytes,omitempty"`
	MemoryLimit *int64   `json:"memoryLimitBytes,omitempty"`
	Processes   *int64   `json:"processes,omitempty"`
	Received    *float64 `json:"networkReceived,omitempty"` // pods only
	Sent        *float64 `json:"networkSent,omitempty"`
	Read        *float64 `json:"diskRead,omitempty"`
	Written     *float64 `json:"diskWritten,omitempty"`
	Containers  []TopRow `json:"containers,omitempty"`
}

func Top(w io.Writer, pods []TopRow, o Options) error {
	return render(w, view{
		fallback: JSON, key: "pods", names: each(pods, func(p TopRow) string { return p.Namespace + "/" + p.Name }),
		items: documents(pods),
	}, o)
}
