package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

const wsPing = 30 * time.Second

// wsConn serializes writers. gorilla/websocket allows one at a time.
type wsConn struct {
	*websocket.Conn
	mu sync.Mutex
}

func (c *wsConn) send(channel byte, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, p...))
}

// wsWriter writes to one channel of the server. The first byte of a message is the channel. In v5 a message on
// StreamClose contains the channel to close.
type wsWriter struct {
	conn     *wsConn
	channel  byte
	canClose bool // protocol v5
	warn     func(format string, args ...any)
}

func (w *wsWriter) Write(p []byte) (int, error) {
	if err := w.conn.send(w.channel, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *wsWriter) Close() error {
	if w.canClose {
		return w.conn.send(remotecommand.StreamClose, []byte{w.channel})
	}
	w.warn("this endpoint's WebSocket protocol (v4) cannot tell the process that its input has ended")
	return nil
}

func openWebSocket(ctx context.Context, u *url.URL, s Streams, first Size, o Options) (*channels, error) {
	conn, err := dialWebSocket(ctx, u, o)
	if err != nil {
		return nil, err
	}
	ch := &channels{}
	sinks := map[byte]*io.PipeWriter{}
	ch.status, sinks[remotecommand.StreamErr] = io.Pipe()
	if s.In != nil {
		ch.stdin = &wsWriter{conn: conn, channel: remotecommand.StreamStdIn, canClose: conn.Subprotocol() == remotecommand.StreamProtocolV5Name, warn: o.warn}
	}
	if s.Out != nil {
		ch.stdout, sinks[remotecommand.StreamStdOut] = io.Pipe()
	}
	if s.Err != nil {
		ch.stderr, sinks[remotecommand.StreamStdErr] = io.Pipe()
	}
	if s.TTY {
		ch.resize = &wsWriter{conn: conn, channel: remotecommand.StreamResize}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		demultiplex(conn, sinks)
	}()
	go keepAlive(conn, done)
	ch.close = func() {
		_ = conn.Conn.Close()
		for _, w := range sinks {
			w.Close()
		}
		<-done
	}
	if err := ch.setSize(first); err != nil {
		ch.close()
		return nil, err
	}
	return ch, nil
}

// dialWebSocket offers v5, which can close stdin, and v4.
func dialWebSocket(ctx context.Context, u *url.URL, o Options) (*wsConn, error) {
	ws := *u
	ws.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return dialHost(ctx, u, o) }
	d := websocket.Dialer{
		NetDialContext:    dial,
		NetDialTLSContext: dial,
		HandshakeTimeout:  upgradeTimeout,
		Subprotocols:      []string{remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name},
	}
	conn, resp, err := d.DialContext(ctx, ws.String(), nil)
	if errors.Is(err, websocket.ErrBadHandshake) && resp != nil {
		return nil, upgradeError(resp)
	}
	if err != nil {
		return nil, fmt.Errorf("dial streaming server: %w", err)
	}
	if p := conn.Subprotocol(); p != remotecommand.StreamProtocolV5Name && p != remotecommand.StreamProtocolV4Name {
		conn.Close()
		return nil, &UpgradeError{Code: http.StatusSwitchingProtocols, Message: fmt.Sprintf("WebSocket protocol %q is unknown", p)}
	}
	return &wsConn{Conn: conn}, nil
}

// demultiplex passes each message to its channel until the connection ends. The status is a single message, so its
// channel is closed after the first one. Servers announce the connection by an empty message, which is skipped.
func demultiplex(conn *wsConn, sinks map[byte]*io.PipeWriter) {
	defer func() {
		for _, w := range sinks {
			w.Close()
		}
	}()
	for {
		_, p, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if len(p) < 2 {
			continue
		}
		channel, data := p[0], p[1:]
		if channel == remotecommand.StreamClose {
			channel, data = p[1], nil
		}
		w := sinks[channel]
		if w == nil {
			continue
		}
		if len(data) > 0 {
			_, _ = io.Copy(w, bytes.NewReader(data)) // fails if the reader has gone
		}
		if len(data) == 0 || channel == remotecommand.StreamErr {
			w.Close()
		}
	}
}

// keepAlive sends pings, so that no proxy closes an idle session.
func keepAlive(conn *wsConn, done <-chan struct{}) {
	t := time.NewTicker(wsPing)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
			_ = conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(wsPing))
		}
	}
}
