package client

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is a failed call or connection in words for people. The gRPC code
// stays available through status.FromError and errors.As.
type Error struct {
	// Op is what was tried, such as "list containers"; empty for connecting.
	Op string
	// Endpoint is who was asked.
	Endpoint string
	Code     codes.Code

	text, hint string
	list       []string // what the text introduces, a line each
	skipped    string   // a second hint, at a runtime that was not taken
	err        error
}

func (e *Error) Error() string { return strings.Join(append([]string{e.text}, e.list...), "\n  ") }

// List returns the lines below the first one. Whatever other line breaks the text has are
// somebody else's.
func (e *Error) List() []string { return e.list }

// Hint is the next step when one is known, else empty. Two are a line each.
func (e *Error) Hint() string { return strings.Trim(clean(e.hint)+"\n"+clean(e.skipped), "\n") }

func (e *Error) Unwrap() error { return e.err }

// GRPCStatus gives status.FromError and status.Code the runtime's code.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Error()) }

// registryUnavailable begins a runtime's message about a pull whose registry
// did not answer; CRI gives it the code of a runtime that is away.
const registryUnavailable = "RegistryUnavailable: "

// containerdUnreachable is the same in containerd's words, which has no code for it.
const containerdUnreachable = "failed to do request: "

func (e *Error) unreachable(reason string) {
	e.text = "the registry cannot be reached: " + reason
	e.hint = "is the image's name right, and can this machine reach its registry?"
}

// callError words a failed call. The runtime's own sentence is kept where it
// has one; only what gRPC itself made up is replaced.
func callError(err error, op, endpoint string, spent time.Duration, limit limit) error {
	if err == nil {
		return nil
	}
	var done *Error
	if errors.As(err, &done) {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	e := &Error{Op: op, Endpoint: endpoint, Code: st.Code(), text: plain(st.Message()), err: err}
	if op == opPull {
		e.text = pullReason(e.text)
	}
	if reason, found := strings.CutPrefix(e.text, containerdUnreachable); found && op == opPull {
		e.unreachable(reason)
		return e
	}
	switch st.Code() {
	case codes.DeadlineExceeded:
		e.text = fmt.Sprintf("%s: no answer from %s after %s", op, endpoint, round(spent))
		e.hint = limit.hint()
	case codes.Canceled:
		e.text = op + ": interrupted"
	case codes.Unavailable:
		if registry, found := strings.CutPrefix(e.text, registryUnavailable); found {
			e.unreachable(pullReason(registry))
			break
		}
		// Whether it is gone itself or has lost its engine, its sentence says.
		e.text = fmt.Sprintf("%s: %s is not available: %s", op, endpoint, strings.TrimPrefix(e.text, op+": "))
		e.hint = "the runtime or its engine may have stopped or be restarting; try again"
	case codes.Unimplemented:
		if isNoCall(e.text) {
			e.text = fmt.Sprintf("the runtime at %s does not implement this call (%s)", endpoint, op)
		}
	case codes.ResourceExhausted:
		e.text = fmt.Sprintf("%s: %s", op, e.text)
	}
	if e.text == "" {
		e.text = fmt.Sprintf("%s: the runtime answered %s without a reason", op, st.Code())
	}
	return e
}

// noCall is what gRPC servers say of a call that they do not have. A runtime that
// has the call, and not all that was asked of it, says what it lacks.
var noCall = regexp.MustCompile(`^$|^unknown (service|method)( |$)|^(method \S+ )?not implemented$`)

func isNoCall(text string) bool { return noCall.MatchString(text) }

// plain takes the wrapping out of a message that went through several
// servers: each layer adds the same prefix, none of which helps a reader.
func plain(msg string) string {
	for {
		i := strings.Index(msg, "rpc error: code = ")
		if i < 0 {
			return strings.TrimSpace(msg)
		}
		j := strings.Index(msg[i:], "desc = ")
		if j < 0 {
			return strings.TrimSpace(msg)
		}
		msg = msg[:i] + msg[i+j+len("desc = "):]
	}
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// opPull is the operation of every kind of pull.
const opPull = "pull image"

// aboutTheImage begins a runtime's message about a pull, once or twice over. Who asked for
// the image names it.
var aboutTheImage = regexp.MustCompile(`^((pull image [^\s"]+|failed to pull and unpack image "[^"]*"|failed to resolve reference "[^"]*"|Error response from daemon): )+`)

// pullReason is a runtime's message about a failed pull without the image's name before it.
func pullReason(text string) string {
	if rest := text[len(aboutTheImage.FindString(text)):]; rest != "" {
		return rest
	}
	return text
}

// refusals are how registries and runtimes say that a login is missing or wrong. containerd
// gives no code of its own for it.
var refusals = []string{
	"unauthorized", "authentication required", "no basic auth credentials", "incorrect username or password", "401 unauthorized",
	"403 forbidden", "insufficient_scope", "authorization failed", "pull access denied", "denied: ", "access to the resource is denied",
}

// IsRefused reports whether a pull failed because the registry did not accept the login, or
// wanted one.
func IsRefused(err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.Op != opPull {
		return false
	}
	switch e.Code {
	case codes.Unauthenticated, codes.PermissionDenied:
		return true
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return false
	}
	text := strings.ToLower(e.text)
	for _, refusal := range refusals {
		if strings.Contains(text, refusal) {
			return true
		}
	}
	return false
}

// operations are calls whose method name does not read as what a user did.
var operations = map[string]string{
	"Version":                  "ask for the version",
	"Status":                   "ask for the runtime's status",
	"RuntimeConfig":            "ask for the runtime's configuration",
	"ListPodSandbox":           "list pods",
	"PodSandboxStatus":         "inspect the pod",
	"RunPodSandbox":            "run the pod",
	"StopPodSandbox":           "stop the pod",
	"RemovePodSandbox":         "remove the pod",
	"ContainerStatus":          "inspect the container",
	"ContainerStats":           "read the container's stats",
	"PodSandboxStats":          "read the pod's stats",
	"ListPodSandboxStats":      "list pod stats",
	"ListPodSandboxMetrics":    "list pod metrics",
	"ImageStatus":              "inspect the image",
	"ImageFsInfo":              "ask for the image filesystem",
	"Exec":                     "exec",
	"ExecSync":                 "exec",
	"PortForward":              "port-forward",
	"GetContainerEvents":       "watch events",
	"UpdateContainerResources": "update the container",
}

// operation is a call in words: "/runtime.v1.RuntimeService/ListContainers"
// is "list containers".
func operation(method string) string {
	name := method[strings.LastIndexByte(method, '/')+1:]
	if s, ok := operations[name]; ok {
		return s
	}
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
