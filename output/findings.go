package output

import "io"

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
