// Package frames limits the SPDY frames of moby/spdystream at both ends of a streaming connection.
package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Size is the maximum data of a frame. A frame costs several switches between goroutines whatever its size.
const Size = 128 << 10

// Copy is io.Copy with buffers of Size. ReadFrom of a TCP connection would use smaller ones.
func Copy(to io.Writer, from io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, Size))
	return err
}

// Types of control frames. Conn rejects frames of other types and of a wrong length. The library reads the fields of the
// type and ignores the length, so it would read the next frame from the wrong position.
const (
	synStream  = 1 // opens a stream; at least 10 bytes
	synReply   = 2 // at least 4 bytes
	rstStream  = 3
	ping       = 6
	goAway     = 7
	maxHeaders = 4 << 10 // maximum length of a frame with headers; streams here use about a hundred bytes
)

const (
	headerSize = 8
	idSize     = 4
	maxID      = 1<<31 - 1
)

// Conn is a network connection below SPDY. It limits the memory that the library uses for a peer. The library queues up
// to 250 unread data frames of up to 16 MiB, so Conn splits frames longer than Size. The library starts a goroutine for
// each stream id that is not new, so Read fails on such an id, which ends all streams of the connection.
type Conn struct {
	net.Conn
	from io.Reader

	header  [headerSize + idSize]byte
	unread  []byte // rest of the header
	payload uint32 // unread bytes of the frame
	more    uint32 // bytes of the data frame left for further pieces
	flags   byte   // flags of the data frame
	nextID  uint32 // smallest id for a new stream

	frame []byte // frame being written
}

func frameLength(header []byte) uint32 { return binary.BigEndian.Uint32(header[4:]) & 0xffffff }

// NewConn returns a connection that reads through from, which includes bytes buffered after the HTTP request or
// response.
func NewConn(conn net.Conn, from io.Reader) *Conn { return &Conn{Conn: conn, from: from} }

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

// Write implements net.Conn. The library writes a frame in several pieces, which are sent together.
func (c *Conn) Write(b []byte) (int, error) {
	c.frame = append(c.frame, b...)
	if len(c.frame) < headerSize || len(c.frame) < headerSize+int(frameLength(c.frame)) {
		return len(b), nil
	}
	_, err := c.Conn.Write(c.frame)
	c.frame = c.frame[:0]
	return len(b), err
}

// Close implements net.Conn. Both the library and its user close the connection. The second call returns nil instead of
// net.ErrClosed, because the library waits a second or longer after an error.
func (c *Conn) Close() error {
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// next reads the header of a frame, or creates the header for the next piece of a data frame that is split. The first
// 32-bit word of a header contains the stream id or the type of a control frame; the second contains flags and length.
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
		c.header[4] = c.flags // only the last piece ends the stream
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
