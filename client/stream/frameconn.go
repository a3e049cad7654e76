package stream

import (
	"bufio"
	"errors"
	"net"

	"github.com/crishim/crishim/internal/spdyframe"
)

const readBuffer = 256 << 10

// frameConn is a network connection below SPDY. It gives back what was read
// beyond the HTTP answer, and sends each frame in one piece.
//
// It may be closed twice, by the library and by shut; to the library an error
// of Close is something to wait for.
type frameConn struct {
	net.Conn
	r *bufio.Reader
	w *spdyframe.Writer
}

func newFrameConn(c net.Conn, r *bufio.Reader) *frameConn {
	return &frameConn{Conn: c, r: r, w: spdyframe.NewWriter(c)}
}

func (c *frameConn) Read(p []byte) (int, error) { return c.r.Read(p) }

func (c *frameConn) Write(p []byte) (int, error) { return c.w.Write(p) }

func (c *frameConn) Close() error {
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
