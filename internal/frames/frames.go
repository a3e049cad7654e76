// Package frames has the limits that both ends of a streaming connection put on moby/spdystream, which
// reads and writes the frames of SPDY.
package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Size is the largest piece of a stream in a frame. A frame costs several
// hand-offs between goroutines whatever its size.
const Size = 128 << 10

// Copy is io.Copy with pieces of Size. A TCP connection's own ReadFrom takes smaller ones.
func Copy(to io.Writer, from io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, Size))
	return err
}

// Control frames of a streaming connection, and their lengths. The library reads as
// much of a frame as its type needs, whatever its length is: after a frame of another length
// the next one would begin elsewhere.
const (
	synStream  = 1 // opens a stream; at least 10
	synReply   = 2 // at least 4
	rstStream  = 3
	ping       = 6
	goAway     = 7
	maxHeaders = 4 << 10 // of a frame that has headers; those of a stream here take a hundred bytes
)

const (
	headerSize = 8
	idSize     = 4
	maxID      = 1<<31 - 1
)

// Conn is a network connection below SPDY. It limits the memory that the library holds for a
// peer: the library queues 250 data frames of up to 16 MiB that
// are not read, so frames longer than Size come in pieces; and it starts a goroutine for
// each stream id that is not new, so such an id ends the connection.
type Conn struct {
	net.Conn
	from io.Reader

	header  [headerSize + idSize]byte
	unread  []byte // of header
	payload uint32 // bytes behind that which are not read
	more    uint32 // bytes of the same data frame that are for its next pieces
	flags   byte   // of the data frame
	nextID  uint32 // the smallest that a stream may have

	frame []byte // that is being written
}

func frameLength(header []byte) uint32 { return binary.BigEndian.Uint32(header[4:]) & 0xffffff }

// NewConn returns a connection that is read through from, which has the bytes that came with the HTTP
// request or answer.
func NewConn(conn net.Conn, from io.Reader) *Conn { return &Conn{Conn: conn, from: from} }

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	if len(c.unread) == 0 && c.payload == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	if len(c.unread) > 0 {
		n := copy(b, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	n, err := c.from.Read(b[:min(len(b), int(c.payload))])
	c.payload -= uint32(n)
	return n, err
}

// Write implements net.Conn. The library writes a frame in three pieces and more, one behind
// the other; they are sent as one.
func (c *Conn) Write(b []byte) (int, error) {
	c.frame = append(c.frame, b...)
	if len(c.frame) < headerSize || len(c.frame) < headerSize+int(frameLength(c.frame)) {
		return len(b), nil
	}
	_, err := c.Conn.Write(c.frame)
	c.frame = c.frame[:0]
	return len(b), err
}

// Close implements net.Conn. It may be called twice, by the library and by its user: to the
// library an error is something to wait for.
func (c *Conn) Close() error {
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// next reads the header of a frame, or makes that of the next piece of a data frame. The
// first word has the stream of a data frame or the type of a control frame, the second
// flags and length.
func (c *Conn) next() error {
	if c.more == 0 {
		if _, err := io.ReadFull(c.from, c.header[:headerSize]); err != nil {
			return err
		}
		c.flags = c.header[4]
		length := frameLength(c.header[:])
		if c.header[0]&0x80 != 0 {
			return c.control(length)
		}
		c.more = length
	}
	c.payload = min(c.more, Size)
	c.more -= c.payload
	binary.BigEndian.PutUint32(c.header[4:], c.payload)
	if c.more == 0 {
		c.header[4] = c.flags // the end of the stream is that of the last piece
	}
	c.unread = c.header[:headerSize]
	return nil
}

func (c *Conn) control(length uint32) error {
	kind, valid := binary.BigEndian.Uint16(c.header[2:]), false
	switch kind {
	case synStream:
		valid = length >= 10 && length <= maxHeaders
	case synReply:
		valid = length >= 4 && length <= maxHeaders
	case rstStream, goAway:
		valid = length == 8
	case ping:
		valid = length == 4
	}
	if !valid {
		return fmt.Errorf("invalid SPDY frame: type %d with %d bytes", kind, length)
	}
	if kind != synStream {
		c.unread, c.payload = c.header[:headerSize], length
		return nil
	}
	if _, err := io.ReadFull(c.from, c.header[headerSize:]); err != nil {
		return err
	}
	id := binary.BigEndian.Uint32(c.header[headerSize:])
	if id < c.nextID || id > maxID {
		return fmt.Errorf("invalid SPDY frame: stream %d is not new", id)
	}
	c.unread, c.payload, c.nextID = c.header[:], length-idSize, id+2
	return nil
}
