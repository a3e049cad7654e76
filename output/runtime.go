package output

import (
	"fmt"
	"io"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version writes a runtime's version; its default is crictl's four lines.
func Version(w io.Writer, r *runtimeapi.VersionResponse, o Options) error {
	v := messageView(r)
	v.fallback = Table
	v.names = func() []string { return []string{r.GetRuntimeName()} }
	v.table = func(w io.Writer, _ Options) error {
		_, err := fmt.Fprintf(w, "Version:  %s\nRuntimeName:  %s\nRuntimeVersion:  %s\nRuntimeApiVersion:  %s\n",
			Sanitize(r.GetVersion()), Sanitize(r.GetRuntimeName()), Sanitize(r.GetRuntimeVersion()), Sanitize(r.GetRuntimeApiVersion()))
		return err
	}
	return render(w, v, o)
}

// RuntimeConfig writes what RuntimeConfig answered; its default is crictl's line.
func RuntimeConfig(w io.Writer, r *runtimeapi.RuntimeConfigResponse, o Options) error {
	v := messageView(r)
	v.fallback = Table
	v.names = func() []string {
		if r.GetLinux() == nil {
			return nil
		}
		return []string{r.GetLinux().GetCgroupDriver().String()}
	}
	v.table = func(w io.Writer, _ Options) error {
		if r.GetLinux() == nil {
			return nil
		}
		_, err := fmt.Fprintf(w, "%-20s%s\n", "cgroup driver:", r.GetLinux().GetCgroupDriver())
		return err
	}
	return render(w, v, o)
}

var conditionColumns = []column[*runtimeapi.RuntimeCondition]{
	{name: "CONDITION", value: func(c *runtimeapi.RuntimeCondition, _ Options) string { return c.GetType() }},
	{name: "STATUS", value: func(c *runtimeapi.RuntimeCondition, _ Options) string { return fmt.Sprint(c.GetStatus()) }},
	{name: "REASON", value: func(c *runtimeapi.RuntimeCondition, _ Options) string { return c.GetReason() }},
	{name: "MESSAGE", shrink: true, value: func(c *runtimeapi.RuntimeCondition, _ Options) string { return c.GetMessage() }},
}

// Info writes a runtime's status with what its verbose answer holds.
func Info(w io.Writer, r *runtimeapi.StatusResponse, o Options) error {
	v := view{fallback: JSON}
	v.root = func() ([]byte, error) {
		document := infoTree(r.GetInfo())
		status, err := protoTree(r.GetStatus())
		if err != nil {
			return nil, err
		}
		document["status"] = status
		// crictl prints these two by their Go struct tags, in snake_case.
		document["runtimeHandlers"] = r.GetRuntimeHandlers()
		document["features"] = r.GetFeatures()
		return compactJSON(document)
	}
	v.items = func() ([][]byte, error) {
		b, err := v.root()
		return [][]byte{b}, err
	}
	v.names = func() []string {
		return each(r.GetStatus().GetConditions(), (*runtimeapi.RuntimeCondition).GetType)
	}
	v.table = func(w io.Writer, o Options) error {
		return writeTable(w, r.GetStatus().GetConditions(), conditionColumns, o)
	}
	return render(w, v, o)
}
