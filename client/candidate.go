package client

import "strings"

// States of a [Candidate].
const (
	StateReady       = "ready"         // answers and may be used
	StateAbsent      = "absent"        // no such socket, or no such host
	StateDenied      = "denied"        // no permission to open it
	StateRefused     = "refused"       // nobody listens: a stale socket or a closed port
	StateHangs       = "hangs"         // accepts, or neither accepts nor refuses, but never answers
	StateDocker      = "docker"        // a Docker engine answers there, not a CRI runtime
	StateHTTP        = "http"          // something else that speaks HTTP
	StateNoCRI       = "no CRI"        // speaks gRPC, but serves no CRI
	StateDockersOwn  = "docker's own"  // a containerd that is only there for Docker
	StateFailed      = "failed"        // answers with an error
	StateUnsupported = "not supported" // cannot be tried
	StateNotTried    = "not tried"     // decided before it was its turn
)

// Kinds of a [Candidate].
const (
	KindCRI    = "cri"
	KindEngine = "engine"
)

// Candidate is one endpoint that was probed, with the outcome.
type Candidate struct {
	Endpoint string // as a flag would give it
	Kind     string
	Name     string // of who is known to use the address, such as "containerd"
	State    string
	Detail   string // of the state, such as the runtime's name and version or what went wrong
	API      string // the CRI version that is spoken there: v1 or v1alpha2
	Chosen   bool
}

// reason returns the state as the end of a sentence.
func (c Candidate) reason() string {
	switch c.State {
	case StateAbsent:
		return "there is " + c.Detail
	case StateDenied:
		return "permission denied"
	case StateRefused:
		return "nobody listens there (connection refused)"
	case StateHangs:
		return "it accepts connections but does not answer"
	case StateDocker:
		return "this is a Docker engine, not a CRI runtime"
	case StateHTTP:
		if c.Kind == KindEngine { // HTTP is what it should speak
			return c.Detail
		}
		return "it speaks HTTP, not gRPC"
	case StateNoCRI:
		return "it serves no CRI (the CRI plugin is off)"
	case StateDockersOwn:
		return "it has no pod network and no pod, and belongs to Docker"
	}
	return c.Detail
}

// Hint returns the next step for someone who wants this endpoint to work.
func (c Candidate) Hint() string {
	if host, ssh := strings.CutPrefix(c.Endpoint, "ssh://"); ssh && c.State == StateFailed {
		host, socket, _ := strings.Cut(host, "/")
		return "try `ssh ssh://" + host + " ls -l /" + socket + "`: the login has to work, and the socket has to be there"
	}
	switch c.State {
	case StateAbsent:
		return "see `crishim endpoints` for what is there; is the runtime running?"
	case StateDenied:
		return "try it with sudo, or as a member of the group that owns the socket"
	case StateRefused:
		if strings.HasPrefix(c.Endpoint, "tcp:") || strings.HasPrefix(c.Endpoint, "docker+tcp:") {
			return "are host and port right, and is the runtime running?"
		}
		return "the socket is a leftover of a runtime that is not running; start the runtime again"
	case StateHangs:
		return "the runtime may be starting or stuck; --connect-timeout waits longer"
	case StateDocker:
		e, err := ParseEndpoint(c.Endpoint)
		if err != nil || e.Docker {
			return ""
		}
		e.Docker, e.Path = true, ""
		return "use -r " + e.String() + " for the embedded dockershim"
	case StateHTTP:
		if c.Kind == KindEngine {
			return "is this the engine's address? See its log: journalctl -u docker"
		}
		return "give the address of a CRI socket; see `crishim endpoints`"
	case StateNoCRI:
		return "enable the CRI plugin (disabled_plugins in /etc/containerd/config.toml), or use -r docker:// where Docker runs"
	}
	return ""
}
