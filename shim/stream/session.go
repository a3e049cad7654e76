package stream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"k8s.io/streaming/pkg/httpstream/wsstream"
)

var (
	// errClientGone is why a session's context ends when its client has left.
	errClientGone = errors.New("the client closed the connection")
	errNoStreams  = errors.New("the client did not open its streams in time")
)

// wanted says which streams a request asked for.
type wanted struct{ stdin, stdout, stderr, tty bool }

// session is the client's side of an exec or attach, whatever the protocol.
type session struct {
	stdin          io.Reader // nil when not asked for, like the next two
	stdout, stderr io.Writer
	resize         <-chan terminalSize // nil without a terminal
	finish         func(outcome error) // tells the client how it ended and closes the connection
}

// terminalSize is what clients send on the resize stream.
type terminalSize struct{ Width, Height uint16 }

// open upgrades the connection to the protocol that the client speaks. Where
// that fails the client has been told already.
func (s *Server) open(w http.ResponseWriter, r *http.Request, want wanted) (*session, error) {
	if wsstream.IsWebSocketRequest(r) {
		return s.openWebSocket(w, r, want)
	}
	return s.openSPDY(w, r, want)
}

// resizes reads sizes until the stream or the context ends.
func resizes(ctx context.Context, stream io.Reader) <-chan terminalSize {
	sizes := make(chan terminalSize)
	go func() {
		defer close(sizes)
		decoder := json.NewDecoder(stream)
		for {
			var size terminalSize
			if decoder.Decode(&size) != nil {
				return
			}
			select {
			case sizes <- size:
			case <-ctx.Done():
				return
			}
		}
	}()
	return sizes
}
