package client

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/crishim/crishim/internal/engine"
	"github.com/crishim/crishim/internal/rundir"
)

// Endpoint is a parsed endpoint: the address of a CRI runtime or, if Docker is set, of an engine for the embedded shim.
type Endpoint struct {
	Network string // unix, tcp, ssh or relay; "" for docker:// without an address
	Address string // socket path or host:port; for ssh [user@]host[:port]
	Path    string // remote socket for ssh; "" to discover it
	Docker  bool
}

// relayed is the network of an endpoint that Options.Relay dials. Its address is only a name for messages.
const relayed = "relay"

const endpointForms = "use unix:///run/containerd/containerd.sock, a path, tcp://host:port, ssh://user@host, ssh://user@host/path.sock, " +
	"docker:// or docker:///var/run/docker.sock"

// ParseEndpoint parses all forms of endpoints. The kubelet's counterpart is GetAddressAndDialer.
func ParseEndpoint(s string) (Endpoint, error) {
	fail := func(reason string) (Endpoint, error) {
		return Endpoint{}, &SyntaxError{What: "endpoint", Text: engine.WithoutPassword(s), Reason: reason, hint: endpointForms}
	}
	if s == "" {
		return fail("must not be empty")
	}
	if strings.ContainsFunc(s, isControl) {
		return fail("must not contain control characters")
	}
	scheme, rest, ok := strings.Cut(s, ":")
	if meant := named(s); meant != "" {
		return Endpoint{}, &SyntaxError{What: "endpoint", Text: s, Reason: "must be a URL or the path of a socket", hint: "did you mean " + meant + "?"}
	}
	if !ok || strings.ContainsAny(scheme, "/.") {
		scheme, rest = "unix", s
		if abs, err := filepath.Abs(s); err == nil {
			rest = abs
		}
	}
	scheme = strings.ToLower(scheme)
	var e Endpoint
	e.Network, e.Docker = strings.CutPrefix(scheme, "docker+")
	if scheme == "docker" {
		e.Network, e.Docker = "unix", true
		if rest == "" || rest == "//" {
			return Endpoint{Docker: true}, nil
		}
	}
	rest = strings.TrimPrefix(rest, "//")
	var reason string
	switch e.Network {
	case "unix":
		reason = e.setUnix(rest)
	case "tcp":
		reason = e.setTCP(rest)
	case "ssh":
		reason = e.setSSH(rest)
	case "http", "https":
		reason = "must be an address for CRI, not for HTTP; a Docker engine is docker+tcp://host:port"
	default:
		reason = fmt.Sprintf("unknown scheme %q", scheme)
	}
	if reason != "" {
		return fail(reason)
	}
	return e, nil
}

// named returns the endpoint that a runtime's name is short for, unless a file of that name exists.
func named(name string) string {
	meant := ""
	if strings.EqualFold(name, "docker") {
		meant = "docker://"
	}
	for _, k := range KnownSockets() {
		if strings.EqualFold(name, k.Name) || strings.EqualFold(name, strings.ReplaceAll(k.Name, "-", "")) {
			meant = "unix://" + k.Path
		}
	}
	if _, err := os.Stat(name); err == nil {
		return ""
	}
	return meant
}

func (e *Endpoint) setUnix(path string) (reason string) {
	switch {
	case e.Docker && !strings.HasPrefix(path, "/"):
		return "must be docker:///path; an engine on another host is docker+tcp://host:port or docker+ssh://user@host"
	case !strings.HasPrefix(path, "/"):
		return "must be an absolute path"
	}
	// Bare paths and unix:// URLs are both cleaned, so that the two forms of an endpoint compare equal.
	path = filepath.Clean(path)
	if path == "/" {
		return "must name a socket"
	}
	if len(path) > rundir.MaxSocketPath {
		return fmt.Sprintf("the path of a unix socket must have at most %d bytes, not %d", rundir.MaxSocketPath, len(path))
	}
	e.Address = path
	return ""
}

func (e *Endpoint) setTCP(rest string) (reason string) {
	rest = strings.TrimSuffix(rest, "/")
	host, port, err := net.SplitHostPort(rest)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || number == 0 || host == "" || strings.ContainsAny(rest, "/?#@ ") {
		return "must have a host and a port, as in tcp://host:port"
	}
	e.Address = rest
	return ""
}

func (e *Endpoint) setSSH(rest string) (reason string) {
	u, err := url.Parse("ssh://" + rest)
	switch {
	case err != nil || u.Hostname() == "" || strings.ContainsAny(rest, "?#"):
		return "must have a host, as in ssh://user@host/run/containerd/containerd.sock"
	case strings.HasPrefix(u.Hostname(), "-") || strings.HasPrefix(u.User.Username(), "-"):
		// ssh would parse it as an option.
		return "host and user must not begin with a dash"
	}
	if _, has := u.User.Password(); has {
		return "must not contain a password; ssh asks for it or takes a key"
	}
	path := filepath.Clean(u.Path)
	bare := path == "." || path == "/"
	switch {
	case e.Docker && !bare:
		return "must not have a path; the engine's own socket on that host is used"
	case !bare:
		e.Path = path
	}
	e.Address = u.Host
	if name := u.User.Username(); name != "" {
		e.Address = name + "@" + u.Host
	}
	if strings.ContainsFunc(e.Address+e.Path, isControl) { // checked again after percent-decoding, because of %0a
		return "must not contain control characters"
	}
	if _, err := url.Parse(e.url()); err != nil {
		return "must have a host that a URL can name"
	}
	return ""
}

func (e Endpoint) String() string {
	switch {
	case e.Network == relayed:
		return e.Address
	case e.Docker && e.Network == "":
		return "docker://"
	case e.Docker && e.Network == "unix":
		return "docker://" + e.Address
	case e.Docker:
		return "docker+" + e.url()
	}
	return e.url()
}

// url escapes characters that an ssh URL cannot contain, so that the result can be parsed again.
func (e Endpoint) url() string {
	if e.Network != "ssh" {
		return e.Network + "://" + e.Address + e.Path
	}
	u := url.URL{Scheme: e.Network, Host: e.Address, Path: e.Path}
	if at := strings.LastIndexByte(e.Address, '@'); at >= 0 {
		u.User, u.Host = url.User(e.Address[:at]), e.Address[at+1:]
	}
	return u.String()
}

// engineHost returns the host of a docker endpoint's engine, or "" for docker's default.
func (e Endpoint) engineHost() string {
	if !e.Docker || e.Network == "" {
		return ""
	}
	return e.Network + "://" + e.Address
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// engineEndpoint returns the value of -r that selects this engine.
func engineEndpoint(e Engine) string {
	ep, err := ParseEndpoint("docker+" + e.Host)
	if e.Host == "" || err != nil {
		return "docker://"
	}
	return ep.String()
}
