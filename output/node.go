package output

import (
	"fmt"
	"io"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var versionColumns = []column[*runtimeapi.VersionResponse]{
	{name: "RUNTIME", value: func(r *runtimeapi.VersionResponse, _ Options) string { return r.GetRuntimeName() }},
	{name: "VERSION", value: func(r *runtimeapi.VersionResponse, _ Options) string { return r.GetRuntimeVersion() }},
	{name: "API", value: func(r *runtimeapi.VersionResponse, _ Options) string { return r.GetRuntimeApiVersion() }},
}

// Version writes a runtime's version. The default format is crictl's four lines.
func Version(w io.Writer, r *runtimeapi.VersionResponse, o Options) error {
	return render(w, view{
		fallback: Table, items: messages([]*runtimeapi.VersionResponse{r}), names: []string{r.GetRuntimeName()},
		table: func(w io.Writer, o Options) error {
			if o.Nodes { // Merge needs rows: it cannot add a NODE column to lines of text
				return writeTable(w, []*runtimeapi.VersionResponse{r}, versionColumns, o)
			}
			_, err := fmt.Fprintf(w, "Version:  %s\nRuntimeName:  %s\nRuntimeVersion:  %s\nRuntimeApiVersion:  %s\n",
				Sanitize(r.GetVersion()), Sanitize(r.GetRuntimeName()), Sanitize(r.GetRuntimeVersion()), Sanitize(r.GetRuntimeApiVersion()))
			return err
		},
	}, o)
}

var driverColumns = []column[string]{{name: "CGROUP DRIVER", value: func(driver string, _ Options) string { return driver }}}

// RuntimeConfig writes the runtime's cgroup driver. By default it prints the same line as crictl.
func RuntimeConfig(w io.Writer, r *runtimeapi.RuntimeConfigResponse, o Options) error {
	var drivers []string
	if r.GetLinux() != nil {
		drivers = []string{r.GetLinux().GetCgroupDriver().String()}
	}
	return render(w, view{
		fallback: Table, items: messages([]*runtimeapi.RuntimeConfigResponse{r}), names: drivers,
		table: func(w io.Writer, o Options) error {
			if o.Nodes {
				return writeTable(w, drivers, driverColumns, o)
			}
			return writeLines(w, each(drivers, func(driver string) string { return "cgroup driver:   " + driver }))
		},
	}, o)
}

type condition = *runtimeapi.RuntimeCondition

var conditionColumns = []column[condition]{
	{name: "CONDITION", value: func(c condition, _ Options) string { return c.GetType() }},
	{name: "STATUS", value: func(c condition, _ Options) string { return fmt.Sprint(c.GetStatus()) }, tone: func(c condition, _ Options) tone {
		if c.GetStatus() {
			return good
		}
		return bad
	}},
	{name: "REASON", shrink: true, value: func(c condition, _ Options) string { return c.GetReason() }},
	{name: "MESSAGE", shrink: true, value: func(c condition, _ Options) string { return c.GetMessage() }},
}

// Info writes a runtime's status with its verbose info.
func Info(w io.Writer, r *runtimeapi.StatusResponse, o Options) error {
	conditions := r.GetStatus().GetConditions()
	return render(w, view{
		fallback: JSON,
		items: func() ([][]byte, error) {
			document, err := withInfo(r.GetStatus(), r.GetInfo())
			if err != nil {
				return nil, err
			}
			// crictl encodes runtime handlers and features with encoding/json, so their keys are the snake_case names of the
			// Go struct tags.
			if handlers := r.GetRuntimeHandlers(); handlers != nil {
				document["runtimeHandlers"] = handlers
			}
			if features := r.GetFeatures(); features != nil {
				document["features"] = features
			}
			b, err := compactJSON(document)
			return [][]byte{b}, err
		},
		names: each(conditions, condition.GetType),
		table: func(w io.Writer, o Options) error { return writeTable(w, conditions, conditionColumns, o) },
	}, o)
}

type filesystem struct {
	use   string
	usage *runtimeapi.FilesystemUsage
}

func (f filesystem) mountpoint() string { return f.usage.GetFsId().GetMountpoint() }

var filesystemColumns = []column[filesystem]{
	{name: "USE", value: func(f filesystem, _ Options) string { return f.use }},
	{name: "MOUNTPOINT", shrink: true, value: func(f filesystem, _ Options) string { return f.mountpoint() }},
	{name: "BYTES", value: func(f filesystem, _ Options) string { return size(f.usage.GetUsedBytes().GetValue()) }},
	{name: "INODES", value: func(f filesystem, _ Options) string {
		if f.usage.GetInodesUsed() == nil {
			return unknownCell
		}
		return fmt.Sprint(f.usage.GetInodesUsed().GetValue())
	}},
}

// ImageFsInfo writes the usage of the image filesystems. The default format is crictl's {"status":{…}}.
func ImageFsInfo(w io.Writer, r *runtimeapi.ImageFsInfoResponse, o Options) error {
	rows := each(r.GetImageFilesystems(), func(u *runtimeapi.FilesystemUsage) filesystem { return filesystem{"images", u} })
	for _, u := range r.GetContainerFilesystems() {
		rows = append(rows, filesystem{"containers", u})
	}
	return render(w, view{
		fallback: JSON, items: messages([]*runtimeapi.ImageFsInfoResponse{r}), wrap: "status", names: each(rows, filesystem.mountpoint),
		table: func(w io.Writer, o Options) error { return writeTable(w, rows, filesystemColumns, o) },
		long:  func(w io.Writer, _ Options) error { return longImageFsInfo(w, r) },
	}, o)
}

func Metrics(w io.Writer, r *runtimeapi.ListPodSandboxMetricsResponse, o Options) error {
	return render(w, view{
		fallback: JSON, items: messages([]*runtimeapi.ListPodSandboxMetricsResponse{r}),
		names: each(r.GetPodMetrics(), (*runtimeapi.PodSandboxMetrics).GetPodSandboxId),
	}, o)
}

func MetricDescriptors(w io.Writer, r *runtimeapi.ListMetricDescriptorsResponse, o Options) error {
	return render(w, view{
		fallback: JSON, items: messages([]*runtimeapi.ListMetricDescriptorsResponse{r}),
		names: each(r.GetDescriptors(), (*runtimeapi.MetricDescriptor).GetName),
	}, o)
}

// The commands fill the types below.

// Endpoint is a row of `crishim endpoints`: a candidate endpoint and the result of its probe.
type Endpoint struct {
	Endpoint string `json:"endpoint"`
	Kind     string `json:"kind"`
	State    string `json:"state"`
	Detail   string `json:"detail,omitempty"`
	Chosen   bool   `json:"chosen"`
}

var endpointColumns = []column[Endpoint]{
	{name: "USED", value: func(e Endpoint, _ Options) string {
		if e.Chosen {
			return "*"
		}
		return ""
	}},
	{name: "ENDPOINT", shrink: true, least: 24, value: func(e Endpoint, _ Options) string { return e.Endpoint }},
	{name: "KIND", spare: 1, value: func(e Endpoint, _ Options) string { return e.Kind }},
	{name: "STATE", value: func(e Endpoint, _ Options) string { return e.State }, tone: func(e Endpoint, _ Options) tone {
		switch e.State {
		case "ready":
			return good
		case "absent":
			return faint
		}
		return warn
	}},
	{name: "DETAIL", prose: true, value: func(e Endpoint, _ Options) string { return e.Detail }},
}

// Endpoints writes the candidates in order of precedence.
func Endpoints(w io.Writer, endpoints []Endpoint, o Options) error {
	return values(w, "endpoints", endpoints, endpointColumns, func(e Endpoint) string { return e.Endpoint }, o)
}

const (
	FindingOK      = "ok"
	FindingWarning = "warn"
	FindingFailed  = "fail"
	FindingSkipped = "skip"
)

// Finding is a row of `crishim doctor`: a check, its result, and the next step if there is a problem.
type Finding struct {
	State  string `json:"state"`
	Check  string `json:"check"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

var findingColumns = []column[Finding]{
	{name: "STATE", value: func(f Finding, _ Options) string { return f.State }, tone: func(f Finding, _ Options) tone {
		return map[string]tone{FindingOK: good, FindingWarning: warn, FindingFailed: bad, FindingSkipped: faint}[f.State]
	}},
	{name: "CHECK", value: func(f Finding, _ Options) string { return f.Check }},
	{name: "DETAIL", prose: true, value: func(f Finding, _ Options) string { return f.Detail }},
	{name: "NEXT STEP", prose: true, value: func(f Finding, _ Options) string { return f.Hint }},
}

// Findings writes the results in the order of the checks.
func Findings(w io.Writer, findings []Finding, o Options) error {
	return values(w, "findings", findings, findingColumns, func(f Finding) string { return f.Check }, o)
}

type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Set   bool   `json:"set"` // set in the file; otherwise Value is the default
}

var settingColumns = []column[Setting]{
	{name: "KEY", value: func(s Setting, _ Options) string { return s.Key }},
	{name: "VALUE", shrink: true, value: func(s Setting, _ Options) string { return s.Value }},
	{name: "FROM", value: func(s Setting, _ Options) string {
		if s.Set {
			return "file"
		}
		return "default"
	}},
}

func Settings(w io.Writer, settings []Setting, o Options) error {
	columns := settingColumns
	if o.Crictl && len(o.Columns) == 0 && o.Format.Kind != Wide {
		columns = columns[:2]
	}
	return values(w, "settings", settings, columns, func(s Setting) string { return s.Key }, o)
}
