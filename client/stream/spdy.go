package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"k8s.io/streaming/pkg/httpstream"
)

// spdyProtocol is the only version offered: it is the first that carries the
// exit status, and every CRI runtime speaks it.
const spdyProtocol = "v4.channel.k8s.io"

// openSPDY dials and creates exactly the streams the request asked for; the
// server waits until it has them all.
func openSPDY(ctx context.Context, u *url.URL, s Streams, first size, o Options) (*channels, error) {
	conn, err := dialSPDY(ctx, u, o.TLS, spdyProtocol)
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

func (c *channels) createSPDY(ctx context.Context, conn *spdyConn, s Streams, first size) error {
	create := func(kind string, wanted bool) (httpstream.Stream, error) {
		if !wanted {
			return nil, nil
		}
		st, err := conn.open(ctx, http.Header{"streamType": {kind}})
		if err != nil {
			return nil, fmt.Errorf("open %s stream: %w", kind, err)
		}
		return st, nil
	}
	status, err := create("error", true)
	if err != nil {
		return err
	}
	c.status = status
	_ = status.Close() // nothing goes that way; a server that minds will say so on it
	if st, err := create("resize", s.TTY); err != nil {
		return err
	} else if st != nil {
		c.resize = st
		if err := c.setSize(first); err != nil {
			return fmt.Errorf("send terminal size: %w", err)
		}
	}
	if st, err := create("stdin", s.In != nil); err != nil {
		return err
	} else if st != nil {
		c.stdin = st
	}
	if st, err := create("stdout", s.Out != nil); err != nil {
		return err
	} else if st != nil {
		c.stdout = st
	}
	if st, err := create("stderr", s.Err != nil && !s.TTY); err != nil {
		return err
	} else if st != nil {
		c.stderr = st
	}
	return nil
}

const (
	readSize   = 64 << 10 // of input that is read at once: what a pipe holds
	readBuffer = 32 << 10
)

// frameConn is a network connection below SPDY. It gives back what was read
// beyond the HTTP answer.
//
// It may be closed twice, by the library and by close; to the library an error
// of Close is something to wait for.
type frameConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *frameConn) Read(p []byte) (int, error) { return c.r.Read(p) }

func (c *frameConn) Close() error {
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
