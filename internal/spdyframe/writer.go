// Package spdyframe sends SPDY frames whole. The SPDY library writes a frame in
// several pieces of a few bytes; on a connection each of them is a system call
// and a packet of its own.
package spdyframe

import "io"

const header = 8

// Writer passes frames on in one piece each. It is for one writer at a time.
type Writer struct {
	to    io.Writer
	frame []byte // what has been written of the next frame
}

// NewWriter returns a Writer for a connection on which a frame begins next.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Write sends what completes a frame, and keeps the rest for later.
func (w *Writer) Write(p []byte) (int, error) {
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
	_, err := w.to.Write(w.frame[:whole])
	w.frame = append(w.frame[:0], w.frame[whole:]...)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// length is the length of the frame that b begins with, 0 if too little of it
// is there to tell. Control and data frames have it in the same place.
func length(b []byte) int {
	if len(b) < header {
		return 0
	}
	return header + (int(b[5])<<16 | int(b[6])<<8 | int(b[7]))
}
