package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	utilexec "k8s.io/utils/exec"
)

// wanted says which streams a request asked for.
type wanted struct{ stdin, stdout, stderr, tty bool }

// check refuses what no protocol can carry.
func (want wanted) check() error {
	switch {
	case want.tty && want.stderr:
		return fmt.Errorf("tty and stderr cannot both be true, a terminal has one output: %w", errdefs.ErrInvalidArgument)
	case !want.stdin && !want.stdout && !want.stderr:
		return fmt.Errorf("one of stdin, stdout, or stderr must be set: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// ends are what an exec or attach is connected to.
type ends struct {
	stdin          io.Reader                         // nil: no input
	stdout, stderr io.Writer                         // nil: dropped
	resize         <-chan remotecommand.TerminalSize // nil: it has no terminal
	detached       *atomic.Bool                      // nil: never
}

// session is an exec or attach that waits for its client.
type session struct {
	server *Server
	want   wanted
	attach bool
	run    func(context.Context, ends) error
}

// serve upgrades the connection to the protocol that the client speaks, and runs
// the session. How that has ended is told to the client.
func (x session) serve(w http.ResponseWriter, r *http.Request) {
	o, protocols := x.server.opts, remotecommand.SupportedStreamingProtocols
	streams := &remotecommand.Options{Stdin: x.want.stdin, Stdout: x.want.stdout, Stderr: x.want.stderr, TTY: x.want.tty}
	switch {
	case wsstream.IsWebSocketRequestWithStreamCloseProtocol(r):
		x.serveV5(w, r)
	case x.attach:
		remotecommand.ServeAttach(w, r, x, "", "", "", streams, o.IdleTimeout, o.CreationTimeout, protocols)
	default:
		remotecommand.ServeExec(w, r, x, "", "", "", nil, streams, o.IdleTimeout, o.CreationTimeout, protocols)
	}
}

// ExecInContainer implements [remotecommand.Executor].
func (x session) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader, out, err io.WriteCloser,
	tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	return x.AttachContainer(ctx, "", "", "", in, out, err, tty, resize)
}

// AttachContainer implements [remotecommand.Attacher].
func (x session) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, err io.WriteCloser,
	_ bool, resize <-chan remotecommand.TerminalSize) error {
	if !x.server.begin(&x.server.work) {
		return errStopping
	}
	defer x.server.work.Done()
	e := ends{resize: resize}
	if x.want.stdin {
		e.stdin = in
	}
	if x.want.stdout {
		e.stdout = out
	}
	if x.want.stderr {
		e.stderr = err
	}
	return x.run(ctx, e)
}

// serveV5 does for the fifth version of the protocol, of which the library knows
// nothing, what it does for the others. It is the only one of WebSocket's that can end the input.
func (x session) serveV5(w http.ResponseWriter, r *http.Request) {
	channels := make([]wsstream.ChannelType, remotecommand.StreamResize+1)
	for number, kind := range map[int]wsstream.ChannelType{
		remotecommand.StreamStdIn:  only(x.want.stdin, wsstream.ReadChannel),
		remotecommand.StreamStdOut: only(x.want.stdout, wsstream.WriteChannel),
		remotecommand.StreamStdErr: only(x.want.stderr, wsstream.WriteChannel),
		remotecommand.StreamErr:    wsstream.WriteChannel,
		remotecommand.StreamResize: only(x.want.tty, wsstream.ReadChannel),
	} {
		channels[number] = kind
	}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		remotecommand.StreamProtocolV5Name: {Binary: true, Channels: channels},
	})
	conn.SetIdleTimeout(x.server.opts.IdleTimeout)
	_, streams, err := conn.Open(w, r)
	if err != nil { // the client has been told
		return
	}
	defer conn.Close()
	sizes := make(chan remotecommand.TerminalSize)
	go func() {
		defer close(sizes)
		decoder := json.NewDecoder(streams[remotecommand.StreamResize])
		for size := (remotecommand.TerminalSize{}); decoder.Decode(&size) == nil; {
			select {
			case sizes <- size:
			case <-r.Context().Done():
				return
			}
		}
	}()
	err = x.AttachContainer(r.Context(), "", "", "", streams[remotecommand.StreamStdIn], streams[remotecommand.StreamStdOut],
		streams[remotecommand.StreamStdErr], x.want.tty, sizes)
	_ = json.NewEncoder(streams[remotecommand.StreamErr]).Encode(statusOf(err)) // the client may be gone
}

func only(open bool, kind wsstream.ChannelType) wsstream.ChannelType {
	if open {
		return kind
	}
	return wsstream.IgnoreChannel
}

// statusOf returns what the client reads at the end of a session.
func statusOf(err error) metav1.Status {
	var exit utilexec.ExitError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit):
		return metav1.Status{
			Status: metav1.StatusFailure, Message: exit.Error(), Reason: remotecommand.NonZeroExitCodeReason,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
				Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(exit.ExitStatus()),
			}}},
		}
	}
	return metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError}
}
