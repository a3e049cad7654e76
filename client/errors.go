package client

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/internal/lazyregexp"
)

// SyntaxError is an invalid endpoint, name or selector. It is a usage error, found before any dial.
type SyntaxError struct {
	What, Text, Reason, hint string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid %s %q: %s", e.What, e.Text, e.Reason)
}

func (e *SyntaxError) Hint() string { return e.hint }

// Error is a failed call or connection with a message for users. The gRPC code stays available through status.FromError
// and errors.As.
type Error struct {
	Op       string // such as "list containers"; "" for connecting
	Endpoint string
	Code     codes.Code

	text, hint string
	list       []string // lines below the text, such as candidates
	skipped    string   // second hint, about a skipped runtime
	err        error
}

func (e *Error) Error() string { return strings.Join(append([]string{e.text}, e.list...), "\n  ") }

// List returns the lines that Error prints below the first line. All other line breaks in Error come from the runtime.
func (e *Error) List() []string { return e.list }

// Hint returns the next steps, one per line, or "".
func (e *Error) Hint() string { return strings.Trim(clean(e.hint)+"\n"+clean(e.skipped), "\n") }

func (e *Error) Unwrap() error { return e.err }

func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Error()) }

const (
	// registryUnavailable is the prefix of a runtime's message if the registry did not answer a pull. CRI uses the same
	// gRPC code as for a runtime that does not answer.
	registryUnavailable = "RegistryUnavailable: "
	// containerdUnreachable begins containerd's message if the registry did not answer. The gRPC code does not
	// identify this failure.
	containerdUnreachable = "failed to do request: "
)

// callError returns the Error for a failed call. It keeps the runtime's own sentence and replaces gRPC's.
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
		reason, found := strings.CutPrefix(e.text, containerdUnreachable)
		if !found && e.Code == codes.Unavailable {
			reason, found = strings.CutPrefix(e.text, registryUnavailable)
		}
		switch failure := RegistryFailureOf(reason); {
		case failure == RegistryLimited:
			e.text = "the registry limits how much may be pulled: " + pullReason(reason)
			e.hint = "try again later; many registries have a higher limit for those who log in"
			return e
		case failure == RegistryTrouble:
			e.text = "the registry is in trouble: " + pullReason(reason)
			e.hint = "it was reached, and the fault is not on this machine; try again later"
			return e
		case found:
			e.text = "the registry cannot be reached: " + pullReason(reason)
			e.hint = "is the image's name right, and can this machine reach its registry?"
			return e
		}
	}
	reason, undecoded := strings.CutPrefix(e.text, "grpc: failed to unmarshal the received message: ")
	switch {
	case undecoded:
		e.text = op + ": " + reason
	case e.Code == codes.DeadlineExceeded:
		e.text = fmt.Sprintf("%s: no answer from %s after %s", op, endpoint, round(spent))
		e.hint = limit.hint()
	case e.Code == codes.Canceled:
		e.text = op + ": interrupted"
	case e.Code == codes.Unavailable:
		// The runtime's own message distinguishes a stopped runtime from a runtime whose engine has stopped.
		e.text = fmt.Sprintf("%s: %s is not available: %s", op, endpoint, transportReason(strings.TrimPrefix(e.text, op+": ")))
		e.hint = "the runtime or its engine may have stopped or be restarting; try again"
	case e.Code == codes.Unimplemented && noCall.MatchString(e.text):
		e.text = fmt.Sprintf("the runtime at %s does not implement this call (%s)", endpoint, op)
	case e.Code == codes.ResourceExhausted:
		e.text = fmt.Sprintf("%s: %s", op, e.text)
	case e.text == "":
		e.text = fmt.Sprintf("%s: the runtime answered %s without a reason", op, e.Code)
	}
	return e
}

// transportReason strips gRPC's prefix from a connection error. Any other text is returned unchanged.
func transportReason(text string) string {
	reason, ok := strings.CutPrefix(text, "error reading from server: ")
	if quoted, dialled := strings.CutPrefix(text, "connection error: desc = "); dialled {
		all, err := strconv.Unquote(quoted)
		reason, ok = all[strings.LastIndexByte(all, ':')+1:], err == nil
	}
	switch reason = strings.TrimSpace(reason); {
	case !ok:
		return text
	case strings.HasSuffix(reason, "EOF"):
		return "the connection has ended"
	}
	return reason
}

// noCall matches a gRPC server's message for a call that it does not have. A runtime that has the call but not the
// requested feature answers with a sentence about the feature.
var noCall = lazyregexp.New(`^$|^unknown (service|method)( |$)|^(method \S+ )?not implemented$`)

// plain removes the error prefixes that each gRPC hop adds.
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

const opPull = "pull image"

// aboutTheImage matches the beginning of a runtime's message about a pull, which may name the image twice.
var aboutTheImage = lazyregexp.New(`^((pull image [^\s"]+|failed to pull and unpack image "[^"]*"|failed to resolve reference "[^"]*"|Error response from daemon): )+`)

func pullReason(text string) string {
	if rest := text[len(aboutTheImage.FindString(text)):]; rest != "" {
		return rest
	}
	return text
}

// refusals are substrings of errors about a missing or wrong login. containerd has no code for these errors.
var refusals = []string{
	"unauthorized", "authentication required", "no basic auth credentials", "incorrect username or password", "401 unauthorized",
	"403 forbidden", "insufficient_scope", "authorization failed", "pull access denied", "denied: ", "access to the resource is denied",
}

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
	return slices.ContainsFunc(refusals, func(refusal string) bool { return strings.Contains(text, refusal) })
}

// operations describes calls to users. Any other call is described by the words of its method name.
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

// operation returns "list containers" for "/runtime.v1.RuntimeService/ListContainers".
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

// clean replaces control characters in a runtime's text.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if isControl(r) || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
