package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/spdystream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	utilexec "k8s.io/utils/exec"
)

type wanted struct{ stdin, stdout, stderr, tty bool }

func (want wanted) check() error {
	switch {
	case want.tty && want.stderr:
		return fmt.Errorf("tty and stderr cannot both be true, a terminal has one output: %w", errdefs.ErrInvalidArgument)
	case !want.stdin && !want.stdout && !want.stderr:
		return fmt.Errorf("one of stdin, stdout, or stderr must be set: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

type ends struct {
	stdin          io.Reader                         // nil: no input
	stdout, stderr io.Writer                         // nil: discarded
	resize         <-chan remotecommand.TerminalSize // nil: no terminal, or a protocol without sizes
	detached       *atomic.Bool                      // nil: cannot be detached
	running        func()                            // called when the process runs; may be nil
}

type session struct {
	server *Server
	want   wanted
	run    func(context.Context, ends) error
}

func (x session) serve(w http.ResponseWriter, r *http.Request) {
	open := x.openSPDY
	if wsstream.IsWebSocketRequest(r) {
		open = x.openWebSocket
	}
	streams := open(w, r)
	if streams == nil { // the client has got a response or is gone
		return
	}
	defer streams.close()
	e := ends{}
	if x.want.stdin {
		e.stdin = streams.stdin
	}
	if x.want.stdout {
		e.stdout = streams.stdout
	}
	if x.want.stderr {
		e.stderr = streams.stderr
	}
	if streams.resize != nil {
		e.resize = sizes(r.Context(), streams.resize)
	}
	err := errStopping
	if x.server.begin(&x.server.work) {
		func() {
			defer x.server.work.Done()
			err = x.run(r.Context(), e)
		}()
	}
	switch {
	case !streams.text:
		_ = json.NewEncoder(streams.status).Encode(statusOf(err))
	case err != nil:
		_, _ = io.WriteString(streams.status, err.Error())
	}
}

type streams struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	resize         io.Reader // nil without a terminal or if the protocol has no sizes
	status         io.Writer
	text           bool // the status is plain text, as before protocol version 4
	close          func()
}

// openSPDY waits for the streams of the session. It returns nil if the client does not open them.
func (x session) openSPDY(w http.ResponseWriter, r *http.Request) *streams {
	protocol, err := httpstream.Handshake(r, w, remotecommand.SupportedStreamingProtocols)
	if err != nil {
		return nil
	}
	var (
		mu      sync.Mutex
		missing = []string{remotecommand.StreamTypeError}
		opened  = map[string]*spdystream.Stream{}
		ready   = make(chan struct{})
	)
	sized := protocol == remotecommand.StreamProtocolV3Name || protocol == remotecommand.StreamProtocolV4Name
	for kind, need := range map[string]bool{
		remotecommand.StreamTypeStdin:  x.want.stdin,
		remotecommand.StreamTypeStdout: x.want.stdout,
		remotecommand.StreamTypeStderr: x.want.stderr,
		remotecommand.StreamTypeResize: x.want.tty && sized,
	} {
		if need {
			missing = append(missing, kind)
		}
	}
	conn := upgradeSPDY(w, r, func(stream *spdystream.Stream) bool {
		mu.Lock()
		defer mu.Unlock()
		kind := stream.Headers().Get(remotecommand.StreamType)
		i := slices.Index(missing, kind)
		if i < 0 {
			return false
		}
		missing = slices.Delete(missing, i, i+1)
		opened[kind] = stream
		if len(missing) == 0 {
			close(ready)
		}
		return true
	})
	if conn == nil {
		return nil
	}
	timer := time.NewTimer(x.server.opts.CreationTimeout)
	defer timer.Stop()
	select {
	case <-ready:
	case <-timer.C:
	case <-r.Context().Done():
	}
	mu.Lock()
	complete := len(missing) == 0
	missing = nil // streams that the client opens later are rejected
	mu.Unlock()
	end := func() {
		for _, stream := range opened {
			_ = stream.Reset()
		}
		_ = conn.Close()
	}
	if !complete {
		end()
		return nil
	}
	s := &streams{status: opened[remotecommand.StreamTypeError], text: protocol != remotecommand.StreamProtocolV4Name, close: end}
	s.stdin, s.stdout, s.stderr = opened[remotecommand.StreamTypeStdin], opened[remotecommand.StreamTypeStdout], opened[remotecommand.StreamTypeStderr]
	if resize := opened[remotecommand.StreamTypeResize]; resize != nil {
		s.resize = resize
	}
	return s
}

// openWebSocket upgrades to a channel protocol. The default is version 1. Only version 5 can close the input.
func (x session) openWebSocket(w http.ResponseWriter, r *http.Request) *streams {
	const v1, v4 = wsstream.ChannelWebSocketProtocol, "v4." + wsstream.ChannelWebSocketProtocol
	const base64v1, base64v4 = wsstream.Base64ChannelWebSocketProtocol, "v4." + wsstream.Base64ChannelWebSocketProtocol
	channels := []wsstream.ChannelType{
		remotecommand.StreamStdIn:  only(x.want.stdin, wsstream.ReadChannel),
		remotecommand.StreamStdOut: only(x.want.stdout, wsstream.WriteChannel),
		remotecommand.StreamStdErr: only(x.want.stderr, wsstream.WriteChannel),
		remotecommand.StreamErr:    wsstream.WriteChannel,
		remotecommand.StreamResize: only(x.want.tty, wsstream.ReadChannel),
	}
	protocols := map[string]wsstream.ChannelProtocolConfig{}
	for _, name := range []string{"", v1, base64v1, v4, base64v4, remotecommand.StreamProtocolV5Name} {
		protocols[name] = wsstream.ChannelProtocolConfig{Binary: name != base64v1 && name != base64v4, Channels: channels}
	}
	conn := wsstream.NewConn(protocols)
	protocol, opened, err := conn.Open(w, r)
	if err != nil {
		return nil
	}
	s := &streams{
		stdin: opened[remotecommand.StreamStdIn], stdout: opened[remotecommand.StreamStdOut], stderr: opened[remotecommand.StreamStdErr],
		status: opened[remotecommand.StreamErr], text: protocol == "" || protocol == v1 || protocol == base64v1, close: func() { _ = conn.Close() },
	}
	if x.want.tty {
		s.resize = opened[remotecommand.StreamResize]
	}
	// An empty message tells the client that it is connected.
	first := s.status
	switch {
	case x.want.stdout:
		first = s.stdout
	case x.want.stderr:
		first = s.stderr
	}
	_, _ = first.Write(nil)
	return s
}

func only(open bool, kind wsstream.ChannelType) wsstream.ChannelType {
	if open {
		return kind
	}
	return wsstream.IgnoreChannel
}

const maxSize = 4 << 10

func sizes(ctx context.Context, from io.Reader) <-chan remotecommand.TerminalSize {
	out := make(chan remotecommand.TerminalSize)
	go func() {
		defer io.Copy(io.Discard, from) //nolint:errcheck // unread data would block the other streams
		defer close(out)
		limited := &io.LimitedReader{R: from}
		decoder := json.NewDecoder(limited)
		for size := (remotecommand.TerminalSize{}); ; {
			limited.N = maxSize
			if decoder.Decode(&size) != nil {
				return
			}
			select {
			case out <- size:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

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
