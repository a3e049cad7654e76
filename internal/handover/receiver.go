package handover

import (
	"errors"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

var errNoConn = errors.New("no connection with the engine came with the message about it")

// receiver reads from a socket and keeps the connection that comes with what is read.
type receiver struct {
	socket *net.UnixConn

	mu   sync.Mutex
	conn net.Conn
	gone bool // nobody takes one any more
}

// Read implements io.Reader. A plain read would throw descriptors away.
func (r *receiver) Read(b []byte) (int, error) {
	var rights [64]byte // room for the one descriptor that is sent, and for some more to be closed
	n, got, _, _, err := r.socket.ReadMsgUnix(b, rights[:])
	if got > 0 {
		r.keep(rights[:got])
	}
	return max(n, 0), err // it is -1 with an error
}

// keep makes a connection of the first descriptor and closes all others.
func (r *receiver) keep(rights []byte) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			r.add(os.NewFile(uintptr(fd), "engine"))
		}
	}
}

func (r *receiver) add(f *os.File) {
	conn, err := net.FileConn(f)
	_ = f.Close() // a descriptor of its own is in conn
	if err != nil {
		return // take says that there is none
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil || r.gone {
		_ = conn.Close()
		return
	}
	r.conn = conn
}

func (r *receiver) take() (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	conn := r.conn
	r.conn = nil
	if conn == nil {
		return nil, errNoConn
	}
	return conn, nil
}

func (r *receiver) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
	if r.conn != nil {
		_ = r.conn.Close()
		r.conn = nil
	}
}
