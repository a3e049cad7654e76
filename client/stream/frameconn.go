package stream

import (
	"bufio"
	"errors"
	"net"
)

const readBuffer = 256 << 10

// readSize is how much input is read at once.
const readSize = 64 << 10

// frameConn is a network connection below SPDY. It gives back what was read
// beyond the HTTP answer.
//
// It may be closed twice, by the library and by shut; to the library an error
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
