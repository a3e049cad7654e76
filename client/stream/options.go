package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// Values of Options.Transport. Auto means SPDY, or WebSocket if the server does not speak SPDY.
const (
	TransportAuto      = "auto"
	transportSPDY      = "spdy"
	transportWebSocket = "websocket"
)

// DefaultDetachKeys is the default of docker and crictl.
const DefaultDetachKeys = "ctrl-p,ctrl-q"

// Streams are the local ends of a session. They must match the request behind the URL: a nil In, Out or Err means that
// the request did not ask for that stream. With TTY, Run ignores Err, because the terminal merges both outputs.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	TTY      bool
}

// Options configure a session. The zero value is usable.
type Options struct {
	// One of the Transport constants; "" means TransportAuto.
	Transport string
	TLS       TLS
	// Dial connects to the streaming server; nil: a direct connection.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// DetachKeys is in docker's notation, see DefaultDetachKeys. It applies only with a TTY. "" disables detaching.
	DetachKeys string
	// OnDetach is called after the detach keys and before the connection is closed. It can tell the runtime to keep the
	// process.
	OnDetach func(ctx context.Context) error
	// FreshURL asks the runtime for another URL. TransportAuto needs it for its second attempt, because a URL is valid
	// once. May be nil.
	FreshURL func(ctx context.Context) (string, error)
	// Warn receives problems that do not end the session. May be nil.
	Warn func(format string, args ...any)
	// Connected is called when the session is ready for input and output. May be nil.
	Connected func()

	// Only Forward uses the fields below.

	// Addresses are the local addresses for ports without one; empty: IPv4 and IPv6 loopback.
	Addresses []string
	// Ready is called for each listening address. May be nil.
	Ready func(local net.Addr, remote uint16)
	// Accepted is called for each connection to a local port. May be nil.
	Accepted func(local net.Addr)
	// Failed is called once for each failed connection. May be nil.
	Failed func(p Port, err error)
	// Alive reports whether the pod still runs. Forward calls it every alivePeriod and stops if it returns false. May
	// be nil.
	Alive func(ctx context.Context) (bool, error)
}

// Check validates the options before any dial.
func (o Options) Check() error {
	switch o.Transport {
	case "", TransportAuto, transportSPDY, transportWebSocket:
	default:
		return fmt.Errorf("invalid --transport %q: must be %s, %s or %s", o.Transport, transportSPDY, transportWebSocket, TransportAuto)
	}
	if _, err := parseDetachKeys(o.DetachKeys); err != nil {
		return err
	}
	return o.TLS.check()
}

func (o Options) warn(format string, args ...any) {
	if o.Warn != nil {
		o.Warn(format, args...)
	}
}

var (
	ErrDetached = errors.New("detached")
	errNoStatus = errors.New("the connection ended before the exit status arrived")
	errPodEnded = errors.New("the pod has ended")
)

// ExitError is the exit status of a command that failed.
type ExitError struct {
	Code int // 1 to 255
}

func (e *ExitError) Error() string { return fmt.Sprintf("command ended with status %d", e.Code) }

// SignalError means that a signal to this process ended the session.
type SignalError struct {
	Signal syscall.Signal
}

func (e *SignalError) Error() string { return fmt.Sprintf("ended by signal: %s", e.Signal) }

// ExitCode returns the exit status that a shell would report.
func (e *SignalError) ExitCode() int { return 128 + int(e.Signal) }

// RemoteError is the runtime's error for a command or session that it could not run.
type RemoteError struct {
	Message string
}

func (e *RemoteError) Error() string { return e.Message }

// UpgradeError is the response of a server that refused the streaming protocol.
type UpgradeError struct {
	Code    int // HTTP status
	Message string
}

func (e *UpgradeError) Error() string {
	if e.Code == 404 {
		return "the streaming URL is unknown or already used"
	}
	return fmt.Sprintf("streaming server answered %d: %s", e.Code, e.Message)
}
