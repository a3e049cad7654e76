package output

import "io"

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
