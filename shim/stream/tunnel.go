package stream

import (
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// protocolTunnel is the port-forward protocol of WebSocket clients: the SPDY
// connection travels inside binary messages.
const protocolTunnel = "SPDY/3.1+" + protocolPortForward

// openTunnel upgrades to a WebSocket and speaks SPDY through it.
func (s *Server) openTunnel(w http.ResponseWriter, r *http.Request) (httpstream.Connection, <-chan arrival) {
	upgrader := websocket.Upgrader{
		Subprotocols: []string{protocolTunnel},
		CheckOrigin:  func(*http.Request) bool { return true }, // the guard has
	}
	if !offers(r, protocolTunnel) {
		http.Error(w, "port-forward over websocket needs the subprotocol "+protocolTunnel, http.StatusForbidden)
		return nil, nil
	}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil { // the client has been told
		return nil, nil
	}
	arrivals := make(chan arrival)
	conn, err := spdy.NewServerConnection(&tunnel{Conn: ws.NetConn(), ws: ws}, acceptInto(r.Context(), arrivals))
	if err != nil {
		_ = ws.Close()
		return nil, nil
	}
	conn.SetIdleTimeout(s.opts.IdleTimeout)
	return conn, arrivals
}

func offers(r *http.Request, protocol string) bool {
	for _, p := range websocket.Subprotocols(r) {
		if p == protocol {
			return true
		}
	}
	return false
}

// tunnel is a byte stream in the binary messages of a WebSocket. Reads come from one goroutine and writes from one at a time, as
// SPDY does it.
type tunnel struct {
	net.Conn
	ws      *websocket.Conn
	message io.Reader
}

// Read implements net.Conn.
func (t *tunnel) Read(b []byte) (int, error) {
	for {
		if t.message == nil {
			kind, message, err := t.ws.NextReader()
			if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway) {
				return 0, io.EOF
			}
			if err != nil {
				return 0, err
			}
			if kind != websocket.BinaryMessage {
				continue
			}
			t.message = message
		}
		n, err := t.message.Read(b)
		if err == io.EOF {
			t.message, err = nil, nil
			if n == 0 {
				continue
			}
		}
		return n, err
	}
}

// Write implements net.Conn.
func (t *tunnel) Write(b []byte) (int, error) {
	if err := t.ws.WriteMessage(websocket.BinaryMessage, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close implements net.Conn.
func (t *tunnel) Close() error {
	deadline := time.Now().Add(time.Second)
	message := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = t.ws.WriteControl(websocket.CloseMessage, message, deadline) // the other end may be gone
	return t.ws.Close()
}
