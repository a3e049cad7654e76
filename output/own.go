package output

import "io"

// The views of what is no CRI message: commands fill them.

// Endpoint is one line of `crishim endpoints`: a place where a runtime could
// be, and what was found there.
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
	{name: "ENDPOINT", value: func(e Endpoint, _ Options) string { return e.Endpoint }},
	{name: "KIND", spare: 1, value: func(e Endpoint, _ Options) string { return e.Kind }},
	{name: "STATE", value: func(e Endpoint, _ Options) string { return e.State }},
	{name: "DETAIL", prose: true, value: func(e Endpoint, _ Options) string { return e.Detail }},
}

// Endpoints writes what the resolver found, in its order of precedence.
func Endpoints(w io.Writer, endpoints []Endpoint, o Options) error {
	return rows(w, "endpoints", endpoints, endpointColumns, func(e Endpoint) string { return e.Endpoint }, o)
}

// States of a Finding.
const (
	FindingOK      = "ok"
	FindingWarning = "warn"
	FindingFailed  = "fail"
	FindingSkipped = "skip"
)

// Finding is one line of `crishim doctor`: what was looked at, how it is, and
// the next step where something is to be done.
type Finding struct {
	State  string `json:"state"`
	Check  string `json:"check"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

var findingColumns = []column[Finding]{
	{name: "STATE", value: func(f Finding, _ Options) string { return f.State }},
	{name: "CHECK", value: func(f Finding, _ Options) string { return f.Check }},
	{name: "DETAIL", prose: true, value: func(f Finding, _ Options) string { return f.Detail }},
	{name: "NEXT STEP", prose: true, value: func(f Finding, _ Options) string { return f.Hint }},
}

// Findings writes the result of a check-up in the order of the checks.
func Findings(w io.Writer, findings []Finding, o Options) error {
	return rows(w, "findings", findings, findingColumns, func(f Finding) string { return f.Check }, o)
}

// Setting is one key of the config file.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Set says that the file has the key; else the value is the default.
	Set bool `json:"set"`
}

var settingColumns = []column[Setting]{
	{name: "KEY", value: func(s Setting, _ Options) string { return s.Key }},
	{name: "VALUE", value: func(s Setting, _ Options) string { return s.Value }},
	{name: "FROM", value: func(s Setting, _ Options) string {
		if s.Set {
			return "file"
		}
		return "default"
	}},
}

// Settings writes the config file's keys and values.
func Settings(w io.Writer, settings []Setting, o Options) error {
	return rows(w, "settings", settings, settingColumns, func(s Setting) string { return s.Key }, o)
}

// rows writes a list of them: its document is the rows below one key.
func rows[T any](w io.Writer, key string, all []T, columns []column[T], name func(T) string, o Options) error {
	names := func() []string { return each(all, name) }
	return render(w, view{
		fallback: Table, items: values(all), wrap: list(key), names: names, ids: names,
		table: func(w io.Writer, o Options) error { return writeTable(w, all, columns, o) },
	}, o)
}
