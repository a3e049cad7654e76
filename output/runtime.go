package output

import (
	"fmt"
	"io"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version writes a runtime's version; its default is crictl's four lines.
func Version(w io.Writer, r *runtimeapi.VersionResponse, o Options) error {
	return render(w, view{
		fallback: Table, items: messages([]*runtimeapi.VersionResponse{r}),
		names: func() []string { return []string{r.GetRuntimeName()} },
		table: func(w io.Writer, _ Options) error {
			_, err := fmt.Fprintf(w, "Version:  %s\nRuntimeName:  %s\nRuntimeVersion:  %s\nRuntimeApiVersion:  %s\n",
				Sanitize(r.GetVersion()), Sanitize(r.GetRuntimeName()), Sanitize(r.GetRuntimeVersion()), Sanitize(r.GetRuntimeApiVersion()))
			return err
		},
	}, o)
}

// RuntimeConfig writes what RuntimeConfig answered; its default is crictl's line.
func RuntimeConfig(w io.Writer, r *runtimeapi.RuntimeConfigResponse, o Options) error {
	return render(w, view{
		fallback: Table, items: messages([]*runtimeapi.RuntimeConfigResponse{r}),
		names: func() []string {
			if r.GetLinux() == nil {
				return nil
			}
			return []string{r.GetLinux().GetCgroupDriver().String()}
		},
		table: func(w io.Writer, _ Options) error {
			if r.GetLinux() == nil {
				return nil
			}
			_, err := fmt.Fprintf(w, "%-20s%s\n", "cgroup driver:", r.GetLinux().GetCgroupDriver())
			return err
		},
	}, o)
}

var conditionColumns = []column[*runtimeapi.RuntimeCondition]{
	{name: "CONDITION", value: func(c *runtimeapi.RuntimeCondition, _ Options) string { return c.GetType() }},
	{name: "STATUS", value: func(c *runtimeapi.RuntimeCondition, _ Options) string { return fmt.Sprint(c.GetStatus()) }},
	{name: "REASON", value: func(c *runtimeapi.RuntimeCondition, _ Options) string { return c.GetReason() }},
	{name: "MESSAGE", shrink: true, value: func(c *runtimeapi.RuntimeCondition, _ Options) string { return c.GetMessage() }},
}

// Info writes a runtime's status with what its verbose answer holds.
func Info(w io.Writer, r *runtimeapi.StatusResponse, o Options) error {
	conditions := r.GetStatus().GetConditions()
	return render(w, view{
		fallback: JSON,
		items: func() ([][]byte, error) {
			document := infoTree(r.GetInfo())
			status, err := protoTree(r.GetStatus())
			if err != nil {
				return nil, err
			}
			document["status"] = status
			// crictl prints these two by their Go struct tags, in snake_case.
			document["runtimeHandlers"] = r.GetRuntimeHandlers()
			document["features"] = r.GetFeatures()
			b, err := compactJSON(document)
			return [][]byte{b}, err
		},
		names: func() []string { return each(conditions, (*runtimeapi.RuntimeCondition).GetType) },
		table: func(w io.Writer, o Options) error { return writeTable(w, conditions, conditionColumns, o) },
	}, o)
}

// filesystem is one line of the image filesystem table.
type filesystem struct {
	use   string
	usage *runtimeapi.FilesystemUsage
}

var filesystemColumns = []column[filesystem]{
	{name: "USE", value: func(f filesystem, _ Options) string { return f.use }},
	{name: "MOUNTPOINT", shrink: true, value: func(f filesystem, _ Options) string { return f.usage.GetFsId().GetMountpoint() }},
	{name: "BYTES", value: func(f filesystem, _ Options) string { return size(f.usage.GetUsedBytes().GetValue()) }},
	{name: "INODES", value: func(f filesystem, _ Options) string {
		if f.usage.GetInodesUsed() == nil {
			return "-"
		}
		return countCell(int64(f.usage.GetInodesUsed().GetValue()))
	}},
}

// ImageFsInfo writes the use of the image filesystems; its default is crictl's
// {"status":{…}}.
func ImageFsInfo(w io.Writer, r *runtimeapi.ImageFsInfoResponse, o Options) error {
	var rows []filesystem
	for _, u := range r.GetImageFilesystems() {
		rows = append(rows, filesystem{"images", u})
	}
	for _, u := range r.GetContainerFilesystems() {
		rows = append(rows, filesystem{"containers", u})
	}
	return render(w, view{
		fallback: JSON, items: messages([]*runtimeapi.ImageFsInfoResponse{r}),
		wrap: func(items [][]byte) []byte { return slices.Concat([]byte(`{"status":`), items[0], []byte("}")) },
		names: func() []string {
			return each(rows, func(f filesystem) string { return f.usage.GetFsId().GetMountpoint() })
		},
		table: func(w io.Writer, o Options) error { return writeTable(w, rows, filesystemColumns, o) },
	}, o)
}

// Metrics writes what ListPodSandboxMetrics answered, under crictl's root.
func Metrics(w io.Writer, r *runtimeapi.ListPodSandboxMetricsResponse, o Options) error {
	return render(w, view{
		fallback: JSON, items: messages([]*runtimeapi.ListPodSandboxMetricsResponse{r}),
		names: func() []string { return each(r.GetPodMetrics(), (*runtimeapi.PodSandboxMetrics).GetPodSandboxId) },
	}, o)
}

// MetricDescriptors writes what ListMetricDescriptors answered.
func MetricDescriptors(w io.Writer, r *runtimeapi.ListMetricDescriptorsResponse, o Options) error {
	return render(w, view{
		fallback: JSON, items: messages([]*runtimeapi.ListMetricDescriptorsResponse{r}),
		names: func() []string { return each(r.GetDescriptors(), (*runtimeapi.MetricDescriptor).GetName) },
	}, o)
}
