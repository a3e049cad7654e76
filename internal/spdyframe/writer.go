// Package spdyframe sends SPDY frames whole, and large ones where there is much
// to send. The SPDY library writes a frame in several pieces of a few bytes; on
// a connection each of them is a system call and a packet of its own.
package spdyframe

import (
	"io"
	"net"
	"sync"
)

const (
	header = 8
	// vectored is how much data is not worth a copy to join its header.
	vectored = 4 << 10
)

// Writer passes frames on in one piece each. Write is for one writer at a time,
// and streams may write beside it.
type Writer struct {
	to      io.Writer
	gather  bool       // the kernel joins pieces
	frame   []byte     // what has been written of the next frame
	sending sync.Mutex // held while frames are sent
}

// NewWriter returns a Writer for a connection on which a frame begins next.
func NewWriter(to io.Writer) *Writer {
	w := &Writer{to: to}
	switch to.(type) {
	case *net.TCPConn, *net.UnixConn:
		w.gather = true
	}
	return w
}

// Write sends what completes a frame, and keeps the rest for later.
func (w *Writer) Write(p []byte) (int, error) {
	if w.gather && len(p) >= vectored && len(w.frame) == header && length(w.frame) == header+len(p) {
		err := w.send(w.frame, p)
		w.frame = w.frame[:0]
		if err != nil {
			return 0, err
		}
		return len(p), nil
	}
	w.frame = append(w.frame, p...)
	whole := 0
	for {
		n := length(w.frame[whole:])
		if n == 0 || whole+n > len(w.frame) {
			break
		}
		whole += n
	}
	if whole == 0 {
		return len(p), nil
	}
	err := w.send(w.frame[:whole])
	w.frame = append(w.frame[:0], w.frame[whole:]...)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// send sends whole frames, which are in pieces.
func (w *Writer) send(pieces ...[]byte) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	var err error
	if len(pieces) == 1 {
		_, err = w.to.Write(pieces[0])
	} else {
		_, err = (*net.Buffers)(&pieces).WriteTo(w.to)
	}
	return err
}

// length is the length of the frame that b begins with, 0 if too little of it
// is there to tell. Control and data frames have it in the same place.
func length(b []byte) int {
	if len(b) < header {
		return 0
	}
	return header + (int(b[5])<<16 | int(b[6])<<8 | int(b[7]))
}
