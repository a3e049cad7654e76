package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	StateReady       = "ready"         // answers and can be used; an engine behind ssh or TLS is not asked
	StateAbsent      = "absent"        // no such socket or host
	StateDenied      = "denied"        // no permission to open the socket
	stateRefused     = "refused"       // not listening: a stale socket or a closed port
	StateHangs       = "hangs"         // no answer within the limit, also if the connection was accepted
	stateDocker      = "docker"        // a Docker engine, not a CRI runtime
	stateHTTP        = "http"          // another HTTP server
	StateNoCRI       = "no CRI"        // a gRPC server without CRI
	StateDockersOwn  = "docker's own"  // a containerd that only serves Docker
	stateFailed      = "failed"        // answers with an error
	stateUnsupported = "not supported" // cannot be tried
	StateNotTried    = "not tried"     // a candidate of higher precedence answered first
)

const (
	kindCRI    = "cri"
	KindEngine = "engine"
)

// Candidate is a probed endpoint and the result of the probe.
type Candidate struct {
	Endpoint string // in the form of --runtime-endpoint
	Kind     string
	Name     string // usual runtime at this endpoint, such as "containerd"
	State    string
	Detail   string // details of State, such as the runtime's name and version or an error
	API      string // CRI version: v1 or v1alpha2
	Chosen   bool
}

// reason returns the state as a clause for the end of a sentence.
func (c Candidate) reason() string {
	switch c.State {
	case StateAbsent:
		return "there is " + c.Detail
	case StateDenied:
		return "permission denied"
	case stateRefused:
		return "nothing listens there (connection refused)"
	case StateHangs:
		return "it accepts connections but does not answer"
	case stateDocker:
		return "this is a Docker engine, not a CRI runtime"
	case stateHTTP:
		if c.Kind == KindEngine { // an engine is expected to speak HTTP
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

// Hint returns the next step to make this endpoint work.
func (c Candidate) Hint() string {
	if host, ssh := strings.CutPrefix(c.Endpoint, "ssh://"); ssh && c.State == stateFailed {
		host, socket, named := strings.Cut(host, "/")
		if !named {
			return "try `ssh ssh://" + host + " true`: the login has to work"
		}
		return "try `ssh ssh://" + host + " ls -l /" + socket + "`: the login has to work, and the socket has to be there"
	}
	switch c.State {
	case StateAbsent:
		if strings.HasPrefix(c.Endpoint, "ssh:") {
			return "is one running there, and may this user open its socket? -r ssh://HOST/path/to.sock names a socket"
		}
		return "see `crishim endpoints` for what is there; is the runtime running?"
	case StateDenied:
		return "try it with sudo, or as a member of the group that owns the socket"
	case stateRefused:
		if strings.HasPrefix(c.Endpoint, "tcp:") || strings.HasPrefix(c.Endpoint, "docker+tcp:") {
			return "are host and port right, and is the runtime running?"
		}
		return "the socket is a leftover of a runtime that is not running; start the runtime again"
	case StateHangs:
		return "the runtime may be starting or stuck; --connect-timeout waits longer"
	case stateDocker:
		e, err := ParseEndpoint(c.Endpoint)
		if err != nil || e.Docker {
			return ""
		}
		e.Docker, e.Path = true, ""
		return "use -r " + e.String() + " for the embedded dockershim"
	case stateHTTP:
		if c.Kind == KindEngine {
			return "is this the engine's address? See its log: journalctl -u docker"
		}
		return "give the address of a CRI socket; see `crishim endpoints`"
	case StateNoCRI:
		return "enable the CRI plugin (disabled_plugins in /etc/containerd/config.toml), or use -r docker:// where Docker runs"
	}
	return ""
}

// Known is a socket that is probed if no endpoint is given.
type Known struct {
	Name       string // usual runtime at this socket
	Path       string
	Containerd bool // a containerd that may serve only Docker
}

func KnownSockets() []Known {
	return []Known{
		{Name: "crishim serve", Path: "/run/crishim/crishim.sock"},
		{Name: "containerd", Path: "/run/containerd/containerd.sock", Containerd: true},
		{Name: "CRI-O", Path: "/run/crio/crio.sock"},
		{Name: "cri-dockerd", Path: "/var/run/cri-dockerd.sock"},
		{Name: "dockershim", Path: "/var/run/dockershim.sock"},
		{Name: "k3s or rke2", Path: "/run/k3s/containerd/containerd.sock"},
		{Name: "k0s", Path: "/run/k0s/containerd.sock"},
		{Name: "microk8s", Path: "/var/snap/microk8s/common/run/containerd.sock"},
	}
}

func KnownSocket(name string) string {
	sockets := KnownSockets()
	return sockets[slices.IndexFunc(sockets, func(k Known) bool { return k.Name == name })].Path
}

// DockerSocket is the default socket of a Docker engine.
const DockerSocket = "/var/run/docker.sock"

// discover probes the known sockets and the Docker engines concurrently. It chooses the ready socket with the highest
// precedence, else the engine. With all it waits for every result. Only the chosen candidate stays open. The kubelet's
// former flag for this choice was --container-runtime.
func (o *Options) discover(ctx context.Context, all bool) ([]found, error) {
	pctx, cancel := context.WithTimeout(ctx, o.probeTimeout())
	defer cancel()
	var wg sync.WaitGroup
	engines := start(&wg, func() []found { return o.probeEngines(pctx, Endpoint{Docker: true}) })
	var sockets []func() found
	for _, k := range o.knownSockets() {
		sockets = append(sockets, start(&wg, func() found { return o.probeKnown(pctx, k, engines) }))
	}
	chosen := -1
	for i, wait := range sockets {
		if wait().State == StateReady && chosen < 0 {
			chosen = i
		}
		if chosen >= 0 && !all {
			break
		}
	}
	if chosen < 0 || all {
		engines()
	}
	cancel() // stops the remaining probes
	wg.Wait()

	var list []found
	for _, wait := range sockets {
		list = append(list, wait())
	}
	list = append(list, engines()...)
	if last := len(list) - 1; chosen < 0 && last >= 0 && list[last].State == StateReady {
		chosen = last // no socket is ready, so the last candidate is an engine
	}
	for i := range list {
		if i == chosen {
			list[i].Chosen = true
			continue
		}
		if list[i].State == StateNotTried && chosen >= 0 {
			list[i].Detail = "a runtime of higher precedence answered first"
		}
		list[i].close(o)
	}
	switch {
	case chosen >= 0:
		return list, nil
	case ctx.Err() != nil:
		return list, &Error{Code: codes.Canceled, text: "look for a container runtime: interrupted", err: ctx.Err()}
	}
	return list, nothingError(list)
}

// probeTimeout returns the limit of all probes together. --connect-timeout can only shorten it, except over ssh:
// probeHost sets ProbeTimeout.
func (o *Options) probeTimeout() time.Duration {
	if o.ProbeTimeout > 0 {
		return o.ProbeTimeout
	}
	return min(cmp.Or(o.ConnectTimeout, defaultProbeTimeout), defaultProbeTimeout)
}

// start runs f in the background and returns a function that waits for its result.
func start[T any](wg *sync.WaitGroup, f func() T) (wait func() T) {
	wait = sync.OnceValue(f)
	wg.Go(func() { wait() })
	return wait
}

// probeKnown probes a known socket. A containerd that seems to serve only Docker is skipped if an engine answers.
func (o *Options) probeKnown(ctx context.Context, k Known, engines func() []found) found {
	f := o.probeCRI(ctx, Endpoint{Network: "unix", Address: k.Path}, false)
	f.Name = k.Name
	if f.State != StateReady || !k.Containerd || !f.conn.isDockers(ctx) {
		return f
	}
	for _, engine := range engines() {
		if engine.State == StateReady {
			f.State = StateDockersOwn
			f.Detail += ": NetworkReady is false and it has no pod, so it is there for Docker; -r " + f.Endpoint + " takes it all the same"
		}
	}
	return f
}

// Discover probes all candidates of Connect and marks the candidate that Connect would use, without starting the shim.
// It returns the error that Connect would return, except an error of the shim. The list of candidates is complete even
// on an error.
func Discover(ctx context.Context, o Options) ([]Candidate, error) {
	runtime, _, err := o.parseEndpoints()
	if err != nil {
		return nil, err
	}
	list, err := o.discover(ctx, true)
	for _, f := range list {
		if f.Chosen { // the probe has closed the others
			f.close(&o)
		}
	}
	if runtime == nil {
		return candidates(list), err
	}
	o.MaxRetries = 0
	named, err := o.probeNamed(ctx, *runtime, false)
	first := Candidate{Kind: KindEngine, State: StateAbsent}
	if len(named) > 0 {
		f := named[len(named)-1]
		f.close(&o)
		first = f.Candidate
	}
	first.Endpoint = runtime.String()
	out := []Candidate{first}
	for _, c := range candidates(list) {
		c.Chosen = false
		if c.Endpoint != first.Endpoint {
			out = append(out, c)
		} else if first.Name == "" {
			out[0].Name = c.Name
		}
	}
	return out, err
}

// skippedHint names a containerd that answered but was skipped because it seems to serve only Docker.
func skippedHint(list []Candidate) string {
	if c, ok := firstIn(list, StateDockersOwn); ok {
		return fmt.Sprintf("%s answers too, without pod network and pods; `-r %s` takes it", c.Endpoint, c.Endpoint)
	}
	return ""
}

// nothingError lists the candidates. Its hint is about the candidate that came closest to an answer.
func nothingError(tried []found) *Error {
	e := &Error{
		Code: codes.Unavailable, text: "no container runtime found:",
		hint: "start a container runtime, or name its socket with `-r unix:///path` (`-r docker:///path` for a Docker engine)",
	}
	for _, f := range tried {
		e.list = append(e.list, fmt.Sprintf("%s (%s): %s", f.Endpoint, f.Name, f.reason()))
	}
	for _, state := range []string{StateDenied, StateHangs, stateFailed, StateNoCRI, stateRefused} {
		if c, ok := firstIn(candidates(tried), state); ok && c.Hint() != "" {
			e.hint = c.Hint()
			break
		}
	}
	return e
}

func noEngineError(tried []found) *Error {
	e := nothingError(tried)
	e.text = "no Docker engine found:"
	if _, denied := firstIn(candidates(tried), StateDenied); !denied {
		e.hint = "start Docker, set DOCKER_HOST, or name its socket with `-r docker:///path`"
	}
	return e
}

func firstIn(list []Candidate, state string) (Candidate, bool) {
	for _, c := range list {
		if c.State == state {
			return c, true
		}
	}
	return Candidate{}, false
}
