// Package handover is how the shim gives an exec's connection with the engine to
// a client on the same machine: as a descriptor, over a unix socket. Input and
// output then go between client and engine as they would without a shim, and
// what the shim does beside them goes over the socket, a line of JSON for each
// thing to be told.
//
// It begins as an HTTP upgrade of the streaming URL, so that tokens, the checks
// of a request and the end of a session are those of the other protocols. A
// client that cannot reach the socket, for it has another network namespace or is
// on another machine, takes one of these.
package handover

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Protocol is the name in the Upgrade header.
const Protocol = "crishim-handover"

// maxLine is more than any message has: the longest holds back what an engine
// says about a failed start.
const maxLine = 1 << 20

// FromClient is what a client tells the shim.
type FromClient struct {
	Size   *Size `json:"size,omitempty"`   // of its terminal, now
	Spoken bool  `json:"spoken,omitempty"` // the first output has come, and is held back
	Ended  *End  `json:"ended,omitempty"`  // the engine has sent everything, and it is delivered
}

// Size is a terminal's.
type Size struct{ Width, Height uint16 }

// End is how the engine's stream ended.
type End struct {
	Held  []byte `json:"held,omitempty"`  // came before the process was known to run
	Error string `json:"error,omitempty"` // "": as it should
}

// FromShim is what the shim tells a client.
type FromShim struct {
	Engine  *Engine `json:"engine,omitempty"`  // the connection comes with this
	Started bool    `json:"started,omitempty"` // the process runs: output is no longer held back
	Exited  bool    `json:"exited,omitempty"`  // it has ended; output may still be on its way
	Done    *Done   `json:"done,omitempty"`    // nothing comes after this
}

// Engine describes the connection.
type Engine struct {
	Read []byte `json:"read,omitempty"` // from it already
}

// Done is how a session ended.
type Done struct {
	Stdout []byte          `json:"stdout,omitempty"` // after all that came from the engine
	Stderr []byte          `json:"stderr,omitempty"`
	Status json.RawMessage `json:"status"` // as in the fourth version of the other protocols
}

// Conn carries messages and connections.
type Conn struct {
	to    *net.UnixConn
	taken *receiver // nil on the shim's side
	from  *bufio.Reader
	lines *bufio.Scanner

	mu sync.Mutex // held for a message that is sent
}

// NewClient makes the client's end.
func NewClient(socket *net.UnixConn) *Conn {
	in := &receiver{socket: socket}
	c := newConn(socket, in)
	c.taken = in
	return c
}

// NewShim makes the shim's end. What comes over the socket is read from from,
// which may have read some of it before.
func NewShim(socket *net.UnixConn, from io.Reader) *Conn { return newConn(socket, from) }

func newConn(socket *net.UnixConn, from io.Reader) *Conn {
	c := &Conn{to: socket, from: bufio.NewReader(from)}
	c.lines = bufio.NewScanner(c.from)
	c.lines.Buffer(nil, maxLine)
	return c
}

// Reader is for the HTTP answer, which comes before messages.
func (c *Conn) Reader() *bufio.Reader { return c.from }

// Send sends one message.
func (c *Conn) Send(message any) error { return c.send(message, nil) }

// SendConn sends a message together with a connection, which stays open here.
func (c *Conn) SendConn(message any, conn syscall.Conn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) { sent = c.send(message, unix.UnixRights(int(fd))) })
	return errors.Join(err, sent)
}

func (c *Conn) send(message any, rights []byte) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	if rights != nil {
		if n, _, err = c.to.WriteMsgUnix(line, rights, nil); err != nil {
			return err
		}
	}
	_, err = c.to.Write(line[n:])
	return err
}

// Receive reads the next message.
func (c *Conn) Receive(message any) error {
	if !c.lines.Scan() {
		return cmp.Or(c.lines.Err(), io.EOF)
	}
	if err := json.Unmarshal(c.lines.Bytes(), message); err != nil {
		return fmt.Errorf("message about a session: %w", err)
	}
	return nil
}

// Taken is the connection that came with the message that was just received.
func (c *Conn) Taken() (net.Conn, error) { return c.taken.take() }

// Close ends both directions, and forgets a connection that nobody took.
func (c *Conn) Close() error {
	err := c.to.Close()
	if c.taken != nil {
		c.taken.forget()
	}
	return err
}
