package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/crishim/crishim/internal/frames"
)

const (
	upgradeTimeout    = 30 * time.Second
	closeTimeout      = time.Second
	closeWriteTimeout = closeTimeout / 5 // limit for writing the remaining input to the socket
	replyGrace        = 3 * time.Second

	readSize   = 64 << 10 // bytes per read of input: the capacity of a pipe
	readBuffer = 32 << 10
)

// openSPDY dials and creates exactly the requested streams; the server waits until it has all of them. Protocol version
// 4 is the first that carries the exit status, and every CRI runtime has it.
func openSPDY(ctx context.Context, u *url.URL, s Streams, first Size, o Options) (*channels, error) {
	conn, err := dialSPDY(ctx, u, o, remotecommand.StreamProtocolV4Name)
	if err != nil {
		return nil, err
	}
	ch := &channels{close: conn.close}
	if err := ch.createSPDY(ctx, conn, s, first); err != nil {
		conn.close()
		return nil, err
	}
	return ch, nil
}

func (c *channels) createSPDY(ctx context.Context, conn *spdyConn, s Streams, first Size) (err error) {
	create := func(kind string, wanted bool) (st httpstream.Stream) {
		if !wanted || err != nil {
			return nil
		}
		if st, err = conn.open(ctx, http.Header{"streamType": {kind}}); err != nil {
			err = fmt.Errorf("open %s stream: %w", kind, err)
			return nil
		}
		return st
	}
	if status := create("error", true); status != nil {
		c.status = status
		_ = status.Close() // nothing is sent on this stream; the server reports errors on it
	}
	if resize := create("resize", s.TTY); resize != nil {
		c.resize = resize
		err = c.setSize(first)
	}
	c.stdin, c.stdout, c.stderr = create("stdin", s.In != nil), create("stdout", s.Out != nil), create("stderr", s.Err != nil)
	return err
}

// spdyConn is a SPDY connection with its network connection. spdystream would not close the network connection while it
// waits for a silent peer.
type spdyConn struct {
	httpstream.Connection
	raw *frames.Conn
}

// dialSPDY upgrades a connection to SPDY with the given subprotocol. ctx limits only the handshake.
func dialSPDY(ctx context.Context, u *url.URL, o Options, protocol string) (*spdyConn, error) {
	ctx, cancel := context.WithTimeout(ctx, upgradeTimeout)
	defer cancel()
	raw, err := dialHost(ctx, u, o)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	upgraded, err := upgrade(raw, u, protocol)
	if !stop() || err != nil {
		raw.Close()
		return nil, errors.Join(ctx.Err(), err)
	}
	conn, err := spdy.NewClientConnection(upgraded)
	if err != nil {
		return nil, fmt.Errorf("start SPDY: %w", err)
	}
	return &spdyConn{Connection: conn, raw: upgraded}, nil
}

func upgrade(raw net.Conn, u *url.URL, protocol string) (*frames.Conn, error) {
	req := &http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Header: http.Header{
		httpstream.HeaderConnection:      {httpstream.HeaderUpgrade},
		httpstream.HeaderUpgrade:         {spdy.HeaderSpdy31},
		httpstream.HeaderProtocolVersion: {protocol},
	}}
	if err := req.Write(raw); err != nil {
		return nil, fmt.Errorf("ask streaming server: %w", err)
	}
	r := bufio.NewReaderSize(raw, readBuffer)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, fmt.Errorf("answer of streaming server: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(resp.Header.Get(httpstream.HeaderUpgrade), spdy.HeaderSpdy31) {
		defer resp.Body.Close()
		return nil, upgradeError(resp)
	}
	if got := resp.Header.Get(httpstream.HeaderProtocolVersion); got != "" && got != protocol {
		return nil, fmt.Errorf("streaming server chose protocol %q, not %q", got, protocol)
	}
	return frames.NewConn(raw, r), nil
}

// upgradeError reads a server's reason for a refusal. Some servers answer in JSON.
func upgradeError(resp *http.Response) *UpgradeError {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // a truncated body is enough for a message
	text := strings.TrimSpace(string(body))
	var st struct{ Message, Error string }
	if json.Unmarshal(body, &st) == nil && st.Message+st.Error != "" {
		text = st.Message + st.Error
	}
	if text == "" {
		text = http.StatusText(resp.StatusCode)
	}
	return &UpgradeError{Code: resp.StatusCode, Message: text}
}

// open creates a stream. It fails as soon as the connection breaks; the library would wait for its timeout.
func (c *spdyConn) open(ctx context.Context, headers http.Header) (httpstream.Stream, error) {
	type result struct {
		stream httpstream.Stream
		err    error
	}
	done := make(chan result, 1)
	go func() {
		s, err := c.CreateStream(headers)
		done <- result{s, err}
	}()
	select {
	case r := <-done:
		return r.stream, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.CloseChan():
	}
	// The server may have accepted the stream, finished and closed the connection before the library has processed the
	// reply. Therefore open waits for the reply a little longer.
	select {
	case r := <-done:
		return r.stream, r.err
	case <-time.After(replyGrace):
		return nil, errTunnelLost
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// close sends the closing frames if the connection still works, and always closes the network connection. On a broken
// connection it skips the library's Close, which would wait forever for a stream that was opened after the break.
func (c *spdyConn) close() {
	select {
	case <-c.CloseChan():
		_ = c.raw.Close()
		return
	default:
	}
	// Unread input blocks the write of the closing frames.
	_ = c.raw.SetWriteDeadline(time.Now().Add(closeWriteTimeout))
	said := make(chan struct{})
	go func() {
		defer close(said)
		_ = c.Close() // the connection is closed in any case
	}()
	select {
	case <-said:
	case <-time.After(closeTimeout):
	}
	_ = c.raw.Close()
}
