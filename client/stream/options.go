package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// The values of Options.Transport. Auto means SPDY, and WebSocket where the server does not
// speak SPDY.
const (
	TransportAuto      = "auto"
	TransportSPDY      = "spdy"
	TransportWebSocket = "websocket"
)

// DefaultDetachKeys is what docker and crictl detach on.
const DefaultDetachKeys = "ctrl-p,ctrl-q"

// Streams are the local ends of a session. They must agree with the request that made the URL:
// a nil In, Out or Err means that the request did not ask for that stream. With TTY there is
// no Err, as the terminal carries both.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	TTY      bool
}

// Options tune a session; the zero value is good.
type Options struct {
	// Transport is TransportAuto (also when empty), TransportSPDY or TransportWebSocket.
	Transport string
	TLS       TLS
	// Dial connects to the streaming server; nil means directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// DetachKeys in docker's notation, such as DefaultDetachKeys. Empty means that nothing
	// detaches. They count only with a TTY.
	DetachKeys string
	// OnDetach is called after the detach keys and before the connection is closed, so that the
	// runtime can be told to keep the process.
	OnDetach func(ctx context.Context) error
	// FreshURL asks the runtime for another URL; TransportAuto needs it for its second attempt,
	// since a URL is good for one use. May be nil.
	FreshURL func(ctx context.Context) (string, error)
	// Warn reports what the user should know but what is no failure. May be nil.
	Warn func(format string, args ...any)
	// Connected is called when a session takes input and output. May be nil.
	Connected func()

	// The rest is for Forward.

	// Addresses are bound for ports that name none; empty means the IPv4 and the IPv6 loopback.
	Addresses []string
	// Ready is called for each address once it accepts connections. May be nil.
	Ready func(local net.Addr, remote uint16)
	// Accepted is called for every connection to a local port. May be nil.
	Accepted func(local net.Addr)
	// Failed is called once for every connection that could not be carried. May be nil.
	Failed func(p Port, err error)
	// Alive reports whether the pod still runs; Forward asks when the tunnel breaks and ends
	// when the answer is no. May be nil.
	Alive func(ctx context.Context) (bool, error)
}

// Check validates the options before anything is dialled.
func (o Options) Check() error {
	switch o.Transport {
	case "", TransportAuto, TransportSPDY, TransportWebSocket:
	default:
		return fmt.Errorf("invalid --transport %q: must be %s, %s or %s", o.Transport, TransportSPDY, TransportWebSocket, TransportAuto)
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
	// ErrNoStatus says that the connection ended before the command's exit status was received.
	ErrNoStatus = errors.New("the connection ended before the exit status arrived")
	ErrPodEnded = errors.New("the pod has ended")
)

// ExitError is the status of a command that failed.
type ExitError struct {
	Code int // 1 to 255
}

func (e *ExitError) Error() string { return fmt.Sprintf("command ended with status %d", e.Code) }

// SignalError says that a signal to this process ended the session.
type SignalError struct {
	Signal syscall.Signal
}

func (e *SignalError) Error() string { return fmt.Sprintf("ended by signal: %s", e.Signal) }

// ExitCode returns the status that a shell would report.
func (e *SignalError) ExitCode() int { return 128 + int(e.Signal) }

// RemoteError is the runtime's error for a command or a session that it could not run.
type RemoteError struct {
	Message string
}

func (e *RemoteError) Error() string { return e.Message }

// UpgradeError is the answer of a server that did not switch to the streaming protocol.
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
